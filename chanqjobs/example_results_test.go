package chanqjobs_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
)

// Thumbnail is what a Picture is made into.
type (
	Picture   struct{ URL string }
	Thumbnail struct{ Width, Height int }
)

var Shrink = chanqjobs.Define[Picture]("shrink")

func ExampleReturns() {
	ctx, cancel := context.WithCancel(context.Background())
	db, jobs := openJobs(ctx)
	defer db.Close()
	check(chanqjobs.Migrate(ctx, db, chanq.Config{}))
	ended := make(chan error)

	mux := chanqjobs.NewMux()
	chanqjobs.Returns(mux, jobs, Shrink, func(ctx context.Context, l *chanq.Lease[Picture]) (Thumbnail, error) {
		return Thumbnail{Width: 64, Height: 48}, nil
	}, chanqjobs.Options{})
	go func() { ended <- chanqjobs.Run(ctx, chanqjobs.Work(jobs, 4, mux.Handle, chanq.ConsumerConfig{})) }()

	// in the client
	receipts, err := jobs.Send(ctx, Shrink.New(Picture{"https://example.com/cat.png"}))
	check(err)
	thumbnail, err := chanqjobs.Await[Thumbnail](ctx, jobs, receipts[0].ID)
	check(err)
	fmt.Println(thumbnail.Width)

	cancel()
	check(<-ended)
	// Output: 64
}

// Scan is for a book, by the number of its pages.
var Scan = chanqjobs.Define[int]("scan")

func ExampleReporter() {
	ctx, cancel := context.WithCancel(context.Background())
	db, jobs := openJobs(ctx)
	defer db.Close()
	check(chanqjobs.Migrate(ctx, db, chanq.Config{}))
	receipts, err := jobs.Send(ctx, Scan.New(3))
	check(err)

	mux := chanqjobs.NewMux()
	chanqjobs.Handle(mux, Scan, func(ctx context.Context, l *chanq.Lease[int]) error {
		defer cancel()
		reporter := chanqjobs.ReporterOf(jobs, l)
		for page := range l.Body {
			err := reporter.Report(ctx, float64(page+1)/float64(l.Body), fmt.Sprintf("page %d", page+1))
			if errors.Is(err, chanq.ErrLeaseLost) {
				return err // another process has the job; other errors stop no work
			}
		}
		progress, err := chanqjobs.ReadProgress(ctx, db, "jobs", receipts[0].ID, chanq.Config{})
		fmt.Println(progress.Note)
		return err
	}, chanqjobs.Options{})
	check(chanqjobs.Run(ctx, chanqjobs.Work(jobs, 1, mux.Handle, chanq.ConsumerConfig{})))
	// Output: page 3
}
