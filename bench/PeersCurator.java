// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// Curator's InterProcessMutex at the same work: PeersCurator.java pair|handover|crowd HOSTS
// TIMES|MILLISECONDS. A line of JSON: p50_ns and rss_kib; of a crowd: per_s and acquired.
//
// Its crowd is eight clients with a thread each in one process: on few cores that spares it seven
// virtual machines.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

final class PeersCurator {
    private static final int CROWD = 8;
    private static final int PARKED_MS = 50;
    private static final int SESSION_MS = 10_000;

    private static InterProcessMutex lockAt(String hosts, String name) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                hosts, SESSION_MS, SESSION_MS, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        return new InterProcessMutex(client, "/curator/" + name);
    }

    private static String result(long[] took) throws Exception {
        Arrays.sort(took);
        String kib = Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(line -> line.startsWith("VmRSS:"))
                .findFirst().orElseThrow().replaceAll("\\D", "");
        return "{\"p50_ns\": " + took[took.length / 2] + ", \"rss_kib\": " + kib + "}";
    }

    private static String pair(String hosts, int times) throws Exception {
        InterProcessMutex lock = lockAt(hosts, "pair");
        long[] took = new long[times];
        for (int i = -times; i < times; i++) { // once over before it counts: the compiler's share
            long start = System.nanoTime();
            lock.acquire();
            lock.release();
            took[Math.max(i, 0)] = System.nanoTime() - start;
        }
        return result(took);
    }

    private static void takeWhenTold(
            String hosts, SynchronousQueue<Boolean> asked, SynchronousQueue<Long> taken) {
        try {
            InterProcessMutex lock = lockAt(hosts, "handover");
            while (asked.take()) {
                lock.acquire();
                long now = System.nanoTime();
                taken.put(now);
                lock.release();
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static String handover(String hosts, int times) throws Exception {
        InterProcessMutex lock = lockAt(hosts, "handover");
        SynchronousQueue<Boolean> asked = new SynchronousQueue<>();
        SynchronousQueue<Long> taken = new SynchronousQueue<>();
        new Thread(() -> takeWhenTold(hosts, asked, taken)).start();
        long[] took = new long[times];
        for (int i = 0; i < times; i++) {
            lock.acquire();
            asked.put(true);
            Thread.sleep(PARKED_MS);
            long start = System.nanoTime();
            lock.release();
            took[i] = taken.take() - start;
        }
        asked.put(false);
        return result(took);
    }

    private static volatile boolean stop;

    private static void takeAndGive(InterProcessMutex lock, CountDownLatch go, AtomicLong acquired) {
        try {
            go.await();
            while (!stop) {
                lock.acquire();
                acquired.incrementAndGet();
                lock.release();
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static String crowd(String hosts, int forMs) throws Exception {
        CountDownLatch go = new CountDownLatch(1);
        AtomicLong acquired = new AtomicLong();
        List<Thread> members = new ArrayList<>();
        for (int i = 0; i < CROWD; i++) {
            InterProcessMutex lock = lockAt(hosts, "crowd");
            members.add(new Thread(() -> takeAndGive(lock, go, acquired)));
            members.get(i).start();
        }
        long start = System.nanoTime();
        go.countDown();
        Thread.sleep(forMs);
        stop = true;
        double perSecond = acquired.get() * 1e9 / (System.nanoTime() - start);
        for (Thread member : members) {
            member.join();
        }
        return "{\"per_s\": " + perSecond + ", \"acquired\": " + acquired.get() + "}";
    }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        System.out.println(switch (args[0]) {
            case "pair" -> pair(args[1], count);
            case "handover" -> handover(args[1], count);
            case "crowd" -> crowd(args[1], count);
            default -> throw new IllegalArgumentException(args[0]);
        });
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
