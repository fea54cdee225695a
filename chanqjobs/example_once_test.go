package chanqjobs_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqjobs"
)

// Remind is for a customer.
var Remind = chanqjobs.Define[string]("remind")

func ExampleOnce() {
	ctx := context.Background()
	db, jobs := openJobs(ctx)
	defer db.Close()
	check(chanqjobs.Migrate(ctx, db, chanq.Config{}))
	for _, customer := range []string{"ada", "bob", "ada"} {
		check(chanq.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			first, err := chanqjobs.Once(ctx, tx, jobs, "reminder", customer, 24*time.Hour)
			if err == nil && first {
				_, err = jobs.SendTx(ctx, tx, Remind.New(customer))
			}
			return err
		}))
	}

	consumer, err := jobs.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	check(err)
	for job := range consumer.C() {
		fmt.Println("remind", string(job.Body.Bytes()))
		check(job.Ack())
	}
	check(consumer.Shutdown(ctx))
	// Output:
	// remind ada
	// remind bob
}
