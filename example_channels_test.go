package chanq_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/chanq/chanq"
)

// A loop over All skips leases that have expired in the buffer. Leaving it stops the consumer.
func ExampleConsumer_All() {
	ctx := context.Background()
	_, consumer, done := numbers(ctx)
	defer done()
	sum := 0
	for lease := range consumer.All() {
		sum += lease.Body
		check(lease.Ack())
		if lease.Body == 2 {
			break // stops the consumer: 3 stays in the queue
		}
	}
	check(consumer.Shutdown(ctx))
	fmt.Println(sum)
	// Output: 3
}

// Two consumers, for example of two queues, are merged into one channel, and one pool of workers handles both.
func ExampleHandle() {
	ctx := context.Background()
	_, first, doneFirst := numbers(ctx)
	defer doneFirst()
	_, second, doneSecond := numbers(ctx)
	defer doneSecond()

	leases := make(chan *chanq.Lease[int]) // unbuffered: a lease waits in its consumer
	var merge sync.WaitGroup
	for _, consumer := range []*chanq.Consumer[int]{first, second} {
		merge.Go(func() {
			for lease := range consumer.C() {
				leases <- lease
			}
		})
	}
	go func() {
		merge.Wait()
		close(leases)
	}()
	var sum atomic.Int64
	check(chanq.Handle(leases, 4, func(_ context.Context, lease *chanq.Lease[int]) error {
		sum.Add(int64(lease.Body))
		return nil // acked, by the consumer that the lease came from
	}))
	check(first.Shutdown(ctx))
	check(second.Shutdown(ctx))
	fmt.Println(sum.Load())
	// Output: 12
}
