// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// Curator's locks as their users have them, driven by lines. Each has a thread of its own, since
// only its owner may release it.
//     new NUMBER KIND PATH    mutex, read or write
//     try NUMBER              once                 -> NUMBER yes | NUMBER no
//     wait NUMBER             until it is there    -> NUMBER yes
//     free NUMBER                                  -> NUMBER freed
//     left PATH               its nodes            -> 0 COUNT
//     end                     the session          -> 0 ended

import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

final class Locks {
    private static final int SESSION_MS = 10_000;
    private static final int PATIENCE_MS = 60_000;

    private record Owned(InterProcessMutex lock, ExecutorService thread) {}

    private final CuratorFramework client;
    private final Map<Integer, Owned> locks = new HashMap<>();

    private Locks(String hosts) {
        client = CuratorFrameworkFactory.newClient(
                hosts, SESSION_MS, PATIENCE_MS, new RetryOneTime(100));
        client.start();
    }

    private static synchronized void say(int number, String word) {
        System.out.println(number + " " + word);
    }

    private InterProcessMutex make(String kind, String path) {
        return switch (kind) {
            case "mutex" -> new InterProcessMutex(client, path);
            case "read" -> new InterProcessReadWriteLock(client, path).readLock();
            case "write" -> new InterProcessReadWriteLock(client, path).writeLock();
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static String act(String verb, InterProcessMutex lock) throws Exception {
        switch (verb) {
            case "try":
                return lock.acquire(0, TimeUnit.SECONDS) ? "yes" : "no";
            case "wait":
                lock.acquire();
                return "yes";
            case "free":
                lock.release();
                return "freed";
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    /** "No" is an answer of the lock's: whatever else goes wrong must not pass for it. */
    private static void answer(int number, String verb, InterProcessMutex lock) {
        try {
            say(number, act(verb, lock));
        } catch (Exception error) {
            error.printStackTrace();
            say(number, "failed");
        }
    }

    private void obey(String[] words) throws Exception {
        if (words[0].equals("left")) {
            say(0, Integer.toString(client.getChildren().forPath(words[1]).size()));
            return;
        }
        if (words[0].equals("end")) {
            client.close();
            say(0, "ended");
            return;
        }
        int number = Integer.parseInt(words[1]);
        if (words[0].equals("new")) {
            ExecutorService thread = Executors.newSingleThreadExecutor();
            locks.put(number, new Owned(make(words[2], words[3]), thread));
            return;
        }
        Owned owned = locks.get(number);
        owned.thread.execute(() -> answer(number, words[0], owned.lock));
    }

    public static void main(String[] args) throws Exception {
        Locks locks = new Locks(args[0]);
        say(0, "ready");
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
            locks.obey(lines.nextLine().split(" "));
        }
        Runtime.getRuntime().halt(0);
    }
}
