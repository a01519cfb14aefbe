import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;

/** Threads THREADS [SECONDS]: threads that allocate, sleep and lock, then a pool that computes; prints their sums. */
public class Threads {
    public static void main(String[] words) throws Exception {
        int count = Integer.parseInt(words[0]);
        AtomicLong sum = new AtomicLong();
        CountDownLatch go = new CountDownLatch(1);
        Object lock = new Object();
        long[] shared = {0};
        Thread[] threads = new Thread[count];
        for (int i = 0; i < count; i++) {
            int id = i;
            threads[i] = new Thread(() -> {
                try {
                    go.await();
                    List<byte[]> kept = new ArrayList<>();
                    for (int round = 0; round < 50; round++) {
                        kept.add(new byte[1000 + id % 100]);
                        if (kept.size() > 10) kept.clear();
                        synchronized (lock) {
                            shared[0] += 1;
                        }
                        if (round % 10 == 0) Thread.sleep(1);
                    }
                    sum.addAndGet(id);
                } catch (InterruptedException e) {
                    throw new RuntimeException(e);
                }
            });
            threads[i].start();
        }
        go.countDown();
        for (Thread thread : threads) thread.join();
        System.out.println(sum.get() + " " + shared[0]);

        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Future<Long>> results = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            int seed = i;
            results.add(pool.submit(() -> {
                long hash = seed;
                TreeMap<Long, Long> map = new TreeMap<>();
                for (long k = 0; k < 5000; k++) {
                    hash = hash * 6364136223846793005L + 1442695040888963407L;
                    map.put(hash, k);
                }
                return map.firstKey();
            }));
        }
        long all = 0;
        for (Future<Long> result : results) all ^= result.get();
        pool.shutdown();
        System.gc();
        System.out.println(all);
        if (words.length > 1) {
            System.out.println("waiting");
            Thread.sleep(1000 * Long.parseLong(words[1]));
        }
    }
}
