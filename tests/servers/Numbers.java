// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
/* How many nodes the server counts below a node, and how often it was written, in the files of one
 * that is stopped: Numbers DATA-DIRECTORY PATH NUMBER [VERSION]. The next sequential node gets this
 * number; "-" leaves it. */
import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

public class Numbers {
    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        FileTxnSnapLog log = new FileTxnSnapLog(directory, directory);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
        log.restore(tree, sessions, (header, record, digest) -> { });
        DataNode node = tree.getNode(args[1]);
        if (!args[2].equals("-"))
            node.stat.setCversion(Integer.parseInt(args[2]));
        if (args.length > 3)
            node.stat.setVersion(Integer.parseInt(args[3]));
        log.save(tree, sessions, true);
        log.close();
    }
}
