package chanqjobs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/embedded"
)

type (
	WelcomeMail struct{ Name string }
	Invoice     struct{ Number, Cents int }
)

// The kinds of a program are package variables. Sender and receiver use them.
var (
	Welcome = chanqjobs.Define[WelcomeMail]("welcome")
	Bill    = chanqjobs.Define[Invoice]("invoice")
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// openJobs creates and opens a queue of jobs in a new database.
func openJobs(ctx context.Context) (*sql.DB, *chanq.Queue[chanqjobs.Job]) {
	db, err := embedded.Open(":memory:")
	check(err)
	check(chanq.Migrate(ctx, db, "jobs", chanq.Config{}))
	jobs, err := chanqjobs.Open(ctx, db, "jobs", chanq.Config{})
	check(err)
	return db, jobs
}

// Without a Mux: a loop over the channel of leases.
func Example() {
	ctx := context.Background()
	db, jobs := openJobs(ctx)
	defer db.Close()
	_, err := jobs.Send(ctx, Welcome.New(WelcomeMail{"Ada"}), Bill.New(Invoice{Number: 7, Cents: 500})) // one statement
	check(err)

	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	for lease := range consumer.C() {
		switch lease.Type {
		case Welcome.Name():
			mail, err := Welcome.Open(lease)
			if err == nil {
				fmt.Println("welcome,", mail.Body.Name)
			}
			check(lease.Settle(err)) // nil acks; a body that cannot be decoded is dead-lettered
		case Bill.Name():
			bill, err := Bill.Open(lease)
			if err == nil {
				fmt.Println("invoice", bill.Body.Number)
			}
			check(lease.Settle(err))
		}
	}
	check(consumer.Shutdown(ctx))
	// Output:
	// welcome, Ada
	// invoice 7
}

// A channel for each kind.
func ExampleChan() {
	ctx := context.Background()
	db, jobs := openJobs(ctx)
	defer db.Close()
	_, err := jobs.Send(ctx, Welcome.New(WelcomeMail{"Ada"}), Bill.New(Invoice{Number: 7}), Welcome.New(WelcomeMail{"Bob"}))
	check(err)

	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	mux := chanqjobs.NewMux()
	mails, bills := chanqjobs.Chan(mux, Welcome), chanqjobs.Chan(mux, Bill)
	go mux.Split(consumer.C(), 1) // closes both channels when the consumer stops
	for mails != nil || bills != nil {
		select {
		case mail, open := <-mails: // a *chanq.Lease[WelcomeMail]
			if !open {
				mails = nil
				continue
			}
			fmt.Println("welcome,", mail.Body.Name)
			check(mail.Ack())
		case bill, open := <-bills:
			if !open {
				bills = nil
				continue
			}
			fmt.Println("invoice", bill.Body.Number)
			check(bill.Ack())
		}
	}
	check(consumer.Shutdown(ctx))
	// Output:
	// welcome, Ada
	// invoice 7
	// welcome, Bob
}

// A function for each kind, with options.
func ExampleHandle() {
	ctx, stop := context.WithCancel(context.Background())
	db, jobs := openJobs(ctx)
	defer db.Close()
	_, err := jobs.Send(ctx, Welcome.New(WelcomeMail{"Ada"}), Bill.New(Invoice{Number: 7}))
	check(err)

	mux := chanqjobs.NewMux()
	chanqjobs.Handle(mux, Welcome, func(_ context.Context, mail *chanq.Lease[WelcomeMail]) error {
		fmt.Println("welcome,", mail.Body.Name)
		return nil
	}, chanqjobs.Options{})
	chanqjobs.Handle(mux, Bill, func(_ context.Context, bill *chanq.Lease[Invoice]) error {
		fmt.Println("invoice", bill.Body.Number, "attempt", bill.Attempt)
		if bill.Attempt == 1 {
			return errors.New("503")
		}
		stop()
		return nil
	}, chanqjobs.Options{
		Timeout:     10 * time.Second,
		MaxAttempts: 5,
		Backoff:     chanq.ExponentialBackoff(10*time.Millisecond, time.Minute),
	})
	check(chanqjobs.Run(ctx, chanqjobs.Work(jobs, 1, mux.Handle, chanq.ConsumerConfig{})))
	// Output:
	// welcome, Ada
	// invoice 7 attempt 1
	// invoice 7 attempt 2
}

// A handler whose outputs are stored in the transaction that acks its job.
func ExampleHandleTo() {
	ctx := context.Background()
	db, jobs := openJobs(ctx)
	defer db.Close()
	_, err := jobs.Send(ctx, Bill.New(Invoice{Number: 7}))
	check(err)

	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{})
	check(err)
	mux := chanqjobs.NewMux()
	chanqjobs.HandleTo(mux, Bill, func(_ context.Context, bill *chanq.Lease[Invoice]) ([]chanq.Message[chanqjobs.Job], error) {
		fmt.Println("invoice", bill.Body.Number)
		return []chanq.Message[chanqjobs.Job]{Welcome.New(WelcomeMail{"Ada"})}, nil
	}, chanqjobs.Options{})
	chanqjobs.Handle(mux, Welcome, func(_ context.Context, mail *chanq.Lease[WelcomeMail]) error {
		fmt.Println("welcome,", mail.Body.Name)
		consumer.Stop()
		return nil
	}, chanqjobs.Options{})
	check(chanq.Pipe(consumer, jobs, 1, mux.Step))
	// Output:
	// invoice 7
	// welcome, Ada
}

// After a change that old programs would misread, the kind has a new name. Jobs of the old kind are converted.
func ExampleUpgrade() {
	type InvoiceV2 struct {
		Number int
		Euros  string
	}
	BillV2 := chanqjobs.Define[InvoiceV2]("invoice.v2")

	ctx := context.Background()
	db, jobs := openJobs(ctx)
	defer db.Close()
	_, err := jobs.Send(ctx, Bill.New(Invoice{Number: 7, Cents: 250}), BillV2.New(InvoiceV2{Number: 8, Euros: "1.00"}))
	check(err)

	mux := chanqjobs.NewMux()
	handle := func(_ context.Context, bill *chanq.Lease[InvoiceV2]) error {
		fmt.Println(bill.Body.Number, bill.Body.Euros)
		return nil
	}
	chanqjobs.Handle(mux, BillV2, handle, chanqjobs.Options{})
	chanqjobs.Upgrade(mux, Bill, BillV2, func(old Invoice) (InvoiceV2, error) {
		return InvoiceV2{old.Number, fmt.Sprintf("%d.%02d", old.Cents/100, old.Cents%100)}, nil
	}, handle, chanqjobs.Options{})
	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	check(consumer.Handle(1, mux.Handle))
	// Output:
	// 7 2.50
	// 8 1.00
}

type (
	Folder struct{ Files []string }
	File   struct{ Name string }
	Album  struct{ Name string }
)

var (
	Import  = chanqjobs.Define[Folder]("import")
	Resize  = chanqjobs.Define[File]("resize")
	Publish = chanqjobs.Define[Album]("publish")
)

// Fan-out and fan-in: an album is published when all of its pictures are resized. A job adds jobs to its batch.
func ExampleBatches() {
	ctx, stop := context.WithCancel(context.Background())
	db, jobs := openJobs(ctx)
	defer db.Close()
	check(chanqjobs.Migrate(ctx, db, chanq.Config{}))

	batches := chanqjobs.NewBatches(jobs)
	album := chanqjobs.NewBatch() // an ID
	check(chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		return batches.SendTx(ctx, tx, album, Publish.New(Album{"Rome"}),
			Resize.New(File{"1.jpg"}), Resize.New(File{"2.jpg"}), Import.New(Folder{[]string{"3.jpg", "broken"}}))
	}))

	mux := chanqjobs.NewMux()
	chanqjobs.Handle(mux, Resize, func(_ context.Context, file *chanq.Lease[File]) error {
		if file.Body.Name == "broken" {
			return chanq.DeadLetter(errors.New("not a picture"))
		}
		return nil
	}, chanqjobs.Options{})
	chanqjobs.Handle(mux, Import, func(ctx context.Context, folder *chanq.Lease[Folder]) error {
		var files []chanq.Message[chanqjobs.Job]
		for _, name := range folder.Body.Files {
			files = append(files, Resize.New(File{name}))
		}
		album, _ := chanqjobs.InBatch(&folder.Delivery)
		return chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if err := batches.AddTx(ctx, tx, album, files...); err != nil {
				return err
			}
			return folder.AckTx(ctx, tx) // in the same transaction: the album is not published in between
		})
	}, chanqjobs.Options{})
	chanqjobs.Handle(mux, Publish, func(_ context.Context, album *chanq.Lease[Album]) error {
		result, _ := chanqjobs.BatchOf(&album.Delivery)
		fmt.Println(album.Body.Name, "sent", result.Sent, "dead", result.Dead)
		stop()
		return nil
	}, chanqjobs.Options{})
	check(chanqjobs.Run(ctx, batches.Run, chanqjobs.Work(jobs, 4, mux.Handle, chanq.ConsumerConfig{})))

	ctx = context.Background()
	status, err := batches.Status(ctx, album)
	check(err)
	fmt.Println("left", status.Left, "dead", status.Dead)
	// Output:
	// Rome sent 3 dead 1
	// left 0 dead 1
}

// If a part fails, all parts end.
func ExampleRun() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute) // or signal.NotifyContext
	defer stop()
	err := chanqjobs.Run(ctx,
		func(ctx context.Context) error {
			<-ctx.Done()
			fmt.Println("the server ends:", context.Cause(ctx))
			return nil
		},
		func(context.Context) error { return errors.New("the metrics cannot be served") },
	)
	fmt.Println(err)
	// Output:
	// the server ends: the metrics cannot be served
	// the metrics cannot be served
}
