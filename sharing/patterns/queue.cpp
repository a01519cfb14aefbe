// queue.c in C++: a class whose two ends are members side by side. -DMENDED and -DBODY as in queue.c.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "body.h"

struct alignas(128) Node {
    Node *next = nullptr;
    long value = 0;
};

#if MENDED == 1
#define APART alignas(128)
#else
#define APART
#endif
#if BODY == 3
using Count = std::atomic<long>;
#else
using Count = long;
#endif

class alignas(128) Queue {
public:
    explicit Queue(Node *dummy) : head(dummy), tail(dummy) {}
    void append(Node *node)
    {
        tail->next = node;
        *(Node *volatile *)&tail = node; // append
        count(appended);
    }
    Node *remove()
    {
        Node *next = head->next;
        *(Node *volatile *)&head = next; // remove
        count(removed);
        return next;
    }

private:
    static void count(Count &word)
    {
#if BODY == 3
        word.fetch_add(1, std::memory_order_relaxed); // counted
#elif BODY == 2
        *(volatile long *)&word += 1; // counted
#else
        (void)word;
#endif
    }
    APART Node *head;
    Count removed{0};
    APART Node *tail;
    Count appended{0};
};

constexpr long NODES = ROUNDS / 4;
static std::atomic<int> ready;

int main()
{
    std::vector<Node> nodes(2 * NODES + 1);
    static Queue queue(&nodes[0]);
    long sum = 0;
    for (long i = 1; i <= 2 * NODES; i++)
        nodes[i].value = i;
    for (long i = 1; i <= NODES; i++)
        queue.append(&nodes[i]);
    auto start = [] {
        for (ready++; ready < 2;)
            std::this_thread::yield();
    };
    std::thread reader([&] {
        long mine = 0;
        start();
        for (long i = 0; i < NODES; i++)
            mine += queue.remove()->value;
        sum = mine;
    });
    std::thread writer([&] {
        Node *next = &nodes[NODES + 1];
        start();
        for (long i = 0; i < NODES; i++)
            queue.append(next++);
    });
    reader.join();
    writer.join();
    std::printf("%ld\n", sum);
    return sum == NODES * (NODES + 1) / 2 ? 0 : 1;
}
