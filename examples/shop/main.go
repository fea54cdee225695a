// Command shop is a web shop without the web: a checkout stores an order and its jobs in one transaction, and workers in any number of
// processes do the rest. Its statements are for SQLite and PostgreSQL.
//
//	checkout ─▶ charge ─▶ ship ─▶ receipt (a mail)
//	        └─▶ lapse, an hour later: an order that could not be charged is cancelled
//	every day at 6:00 ─▶ report
//
// Each order is charged, shipped and counted once, and has its receipt, whenever a process is killed.
//
//	go run ./examples/shop work                       # in two terminals, for two workers
//	go run ./examples/shop checkout 7c1f ada 1200     # the ID of the order, the customer, and cents
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
	"github.com/chanq/chanq/chanqjobs"
	"github.com/chanq/chanq/embedded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := embedded.Open("market.db")
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(run(ctx, db, os.Args[1:]), db.Close()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, db *sql.DB, args []string) error {
	s, err := open(ctx, db, printer{})
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "work":
		return s.work(ctx)
	case len(args) == 4 && args[0] == "checkout":
		cents, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return s.checkout(ctx, order{args[1], args[2], cents})
	}
	return errors.New("usage: shop work, or shop checkout ID CUSTOMER CENTS")
}

// world is what the shop calls. A job can be repeated, so both calls have a key by which the other side knows a repetition.
type world interface {
	Charge(ctx context.Context, key string, o order) error // errDeclined: the customer has no money
	Mail(ctx context.Context, key, to, text string) error
}

var errDeclined = errors.New("the card was declined")

type printer struct{}

func (printer) Charge(_ context.Context, _ string, o order) error {
	log.Printf("%s pays %d cents for %s", o.Customer, o.Cents, o.ID)
	return nil
}

func (printer) Mail(_ context.Context, _, to, text string) error {
	log.Printf("mail to %s: %s", to, text)
	return nil
}

type order struct {
	ID, Customer string
	Cents        int
}

// The kinds of jobs. Their bodies are small: the rows have the rest.
var (
	charge  = chanqjobs.Define[order]("charge")
	lapse   = chanqjobs.Define[string]("lapse") // the ID of an order
	ship    = chanqjobs.Define[order]("ship")
	receipt = chanqjobs.Define[order]("receipt")
	report  = chanqjobs.Define[struct{}]("report")
)

// patience is how long an order can wait for its money.
const patience = time.Hour

type shop struct {
	db    *sql.DB
	world world
	jobs  *chanq.Queue[chanqjobs.Job]
	cron  *chanqcron.Cron[chanqjobs.Job]
}

const tables = `
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS parcels (order_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reports (day TEXT PRIMARY KEY, orders INTEGER NOT NULL)`

func open(ctx context.Context, db *sql.DB, w world) (*shop, error) {
	config := chanq.Config{Hooks: chanq.LogHooks(nil, slog.LevelWarn)}
	if err := errors.Join(chanq.Migrate(ctx, db, "jobs", config), chanqcron.Migrate(ctx, db, config)); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return nil, err
	}
	jobs, err := chanqjobs.Open(ctx, db, "jobs", config)
	if err != nil {
		return nil, err
	}
	return &shop{db, w, jobs, chanqcron.New(db, jobs)}, nil
}

// checkout stores an order and its jobs, or nothing. The client repeats it with the same ID until it returns nil.
func (s *shop) checkout(ctx context.Context, o order) error {
	return chanq.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		const text = "INSERT INTO orders (id, customer, cents, state) VALUES ($1, $2, $3, 'new') ON CONFLICT (id) DO NOTHING"
		if added, err := changed(tx.ExecContext(ctx, text, o.ID, o.Customer, o.Cents)); err != nil || !added {
			return err // nil: an earlier call has stored it
		}
		cancel := lapse.New(o.ID)
		cancel.Delay = patience
		_, err := s.jobs.SendTx(ctx, tx, charge.New(o), cancel)
		return err
	})
}

// work handles jobs and sends those of the schedule, until ctx is cancelled.
func (s *shop) work(ctx context.Context) error {
	daily := chanqcron.Schedule[chanqjobs.Job]{Name: "report", Line: "0 6 * * *", Message: report.New(struct{}{})}
	if err := s.cron.Ensure(ctx, daily); err != nil {
		return err
	}
	mux := chanqjobs.NewMux()
	chanqjobs.Handle(mux, charge, s.charge, chanqjobs.Options{Timeout: time.Minute})
	chanqjobs.Handle(mux, ship, s.ship, chanqjobs.Options{})
	chanqjobs.Handle(mux, receipt, s.receipt, chanqjobs.Options{Backoff: chanq.ExponentialBackoff(time.Minute, 6*time.Hour)})
	chanqjobs.Handle(mux, lapse, s.lapse, chanqjobs.Options{})
	chanqjobs.Handle(mux, report, s.report, chanqjobs.Options{})
	return chanqjobs.Run(ctx, s.cron.Run, chanqjobs.NewDeaths(s.jobs, s.died).Run, chanqjobs.Work(s.jobs, 4, mux.Handle, chanq.ConsumerConfig{}))
}

// charge takes the money and starts the shipment. The bank knows a repetition by the ID of the order. While an order is being charged it
// does not lapse.
func (s *shop) charge(ctx context.Context, lease *chanq.Lease[order]) error {
	o := lease.Body
	const begin = "UPDATE orders SET state = 'charging' WHERE id = $1 AND state IN ('new', 'charging')"
	if open, err := changed(s.db.ExecContext(ctx, begin, o.ID)); err != nil || !open {
		return err // nil: it has lapsed
	}
	switch err := s.world.Charge(ctx, o.ID, o); {
	case errors.Is(err, errDeclined):
		_, failed := s.db.ExecContext(ctx, giveUp, o.ID)
		return chanq.RetryAfter(10*time.Minute, errors.Join(err, failed)) // until it lapses
	case err != nil:
		return err
	}
	return s.done(ctx, &lease.Delivery, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid' WHERE id = $1", o.ID); err != nil {
			return err
		}
		_, err := s.jobs.SendTx(ctx, tx, ship.New(o))
		return err
	})
}

// giveUp lets an order lapse, unless another attempt was paid.
const giveUp = "UPDATE orders SET state = 'new' WHERE id = $1 AND state = 'charging'"

// died is called once for each dead job. If the bank never answered, it might have the money: ask it before you discard the dead job.
func (s *shop) died(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error {
	o, err := charge.Decode(dead)
	if err != nil {
		return nil // it is of another kind
	}
	_, err = tx.ExecContext(ctx, giveUp, o.ID)
	return err
}

func (s *shop) ship(ctx context.Context, lease *chanq.Lease[order]) error {
	return s.done(ctx, &lease.Delivery, func(ctx context.Context, tx *sql.Tx) error {
		for _, text := range []string{"INSERT INTO parcels (order_id) VALUES ($1)", "UPDATE orders SET state = 'shipped' WHERE id = $1"} {
			if _, err := tx.ExecContext(ctx, text, lease.Body.ID); err != nil {
				return err
			}
		}
		_, err := s.jobs.SendTx(ctx, tx, receipt.New(lease.Body))
		return err
	})
}

// receipt has no row of its own: the mail server knows a repetition by the ID of the job.
func (s *shop) receipt(ctx context.Context, lease *chanq.Lease[order]) error {
	return s.world.Mail(ctx, lease.ID.String(), lease.Body.Customer, "order "+lease.Body.ID+" is on its way")
}

// lapse cancels an order without money.
func (s *shop) lapse(ctx context.Context, lease *chanq.Lease[string]) error {
	return s.done(ctx, &lease.Delivery, func(ctx context.Context, tx *sql.Tx) error {
		const text = "UPDATE orders SET state = CASE state WHEN 'new' THEN 'lapsed' ELSE state END WHERE id = $1 RETURNING state = 'charging'"
		charging := false
		err := tx.QueryRowContext(ctx, text, lease.Body).Scan(&charging)
		if charging {
			return chanq.Snooze(time.Minute, errors.New("it is being charged"))
		}
		return err
	})
}

// report counts the parcels until now. A tick has one report, however often its job is sent.
func (s *shop) report(ctx context.Context, lease *chanq.Lease[struct{}]) error {
	tick, _ := chanqcron.Tick(&lease.Delivery)
	return s.done(ctx, &lease.Delivery, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO reports (day, orders) SELECT $1, COUNT(*) FROM parcels WHERE true ON CONFLICT DO NOTHING",
			tick.Format(time.DateOnly))
		return err
	})
}

// done changes rows, sends further jobs, and acks in one transaction: all of it happens once.
func (s *shop) done(ctx context.Context, d *chanq.Delivery, do func(context.Context, *sql.Tx) error) error {
	return chanq.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		if err := do(ctx, tx); err != nil {
			return fmt.Errorf("%s: %w", d.Type, err)
		}
		return d.AckTx(ctx, tx)
	})
}

// changed reports whether a statement has changed a row.
func changed(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
