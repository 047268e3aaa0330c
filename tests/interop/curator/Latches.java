// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// Curator's LeaderLatch as its users have it, driven by lines.
//     start ID PATH    a participant    -> ID leads, ID lost, when that happens
//     leader ID        as it sees it    -> ID sees LEADER, or ID sees (empty)
//     close ID                          -> ID closed

import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.RetryOneTime;

final class Latches {
    private static final int SESSION_MS = 10_000;
    private static final int PATIENCE_MS = 60_000;

    private final CuratorFramework client;
    private final Map<String, LeaderLatch> latches = new HashMap<>();

    private Latches(String hosts) {
        client = CuratorFrameworkFactory.newClient(
                hosts, SESSION_MS, PATIENCE_MS, new RetryOneTime(100));
        client.start();
    }

    private static synchronized void say(String text) {
        System.out.println(text);
    }

    private void start(String id, String path) throws Exception {
        LeaderLatch latch = new LeaderLatch(client, path, id);
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                say(id + " leads");
            }

            @Override
            public void notLeader() {
                say(id + " lost");
            }
        });
        latches.put(id, latch);
        latch.start();
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "start" -> start(words[1], words[2]);
            case "leader" ->
                say(words[1] + " sees " + latches.get(words[1]).getLeader().getId());
            case "close" -> {
                latches.remove(words[1]).close(LeaderLatch.CloseMode.SILENT);
                say(words[1] + " closed");
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        Latches latches = new Latches(args[0]);
        say("ready");
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
            latches.obey(lines.nextLine().split(" "));
        }
        Runtime.getRuntime().halt(0);
    }
}
