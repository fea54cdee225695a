// Package doctor finds problems of the queues of a database, and names the remedies.
//
// It is read-only. Information that a login may not see is reported as unseen. Each check is
// limited to a few seconds, because the doctor is meant for databases in trouble.
package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/sqlbatch"
)

// Status is the severity of a finding.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Warning Status = "warning" // it works, with a present or future cost
	Failure Status = "failure" // messages are lost, or are not delivered
	Unseen  Status = "unseen"  // this login may not see it, or this database does not have it
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Queue  string `json:"queue,omitempty"` // empty: the whole database
	Status Status `json:"status"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // the advice
}

// Patient is the database to examine.
type Patient struct {
	DB      *sql.DB
	Dialect sqlbatch.Dialect
	Config  chanq.Config // Dialect and Schema
	Queues  []string     // none: all
	// Long is how long a transaction may be open, and Wait how long a session may wait for a row.
	// Defaults: 1 min and 250 ms, which is long enough to detect a session that repeatedly locks
	// the table.
	Long, Wait time.Duration
	// Limits are when a queue is in trouble.
	Limits chanqfindings.Limits
	// Log is how many bytes of SQLite's write-ahead log may wait for a checkpoint. Default 64 MiB.
	Log int64
	// Look is the time limit of a check. Default 5 s.
	Look time.Duration
}

// Examine runs all checks, one after another. It returns an error if the database does not respond.
func Examine(ctx context.Context, p Patient) ([]Finding, error) {
	e := &examination{Patient: p, ctx: ctx}
	e.Long, e.Wait = cmp.Or(p.Long, time.Minute), cmp.Or(p.Wait, 250*time.Millisecond)
	e.Look = cmp.Or(p.Look, 5*time.Second)
	if err := e.answer(); err != nil {
		return nil, err
	}
	e.clock()
	switch p.Dialect.Name() {
	case "postgres":
		e.postgres()
	case "sqlserver":
		e.sqlServer()
	case "sqlite":
		e.sqlite()
	}
	e.queues()
	return e.findings, ctx.Err()
}

// examination is one call of Examine.
type examination struct {
	Patient
	ctx      context.Context
	findings []Finding
}

func (e *examination) add(f Finding) { e.findings = append(e.findings, f) }

func (e *examination) ok(check, format string, args ...any) {
	e.add(Finding{Check: check, Status: OK, Found: fmt.Sprintf(format, args...)})
}

// unseen records a check that failed.
func (e *examination) unseen(check, queue string, err error) {
	e.add(Finding{Check: check, Queue: queue, Status: Unseen, Found: err.Error()})
}

// rows calls scan for each row of a query. If the query fails, it records that and returns false.
func (e *examination) rows(check, text string, scan func(*sql.Rows) error) bool {
	err := e.read(text, scan)
	if err != nil {
		e.unseen(check, "", err)
	}
	return err == nil
}

func (e *examination) read(text string, scan func(*sql.Rows) error) error {
	ctx, cancel := context.WithTimeout(e.ctx, e.Look)
	defer cancel()
	rows, err := e.DB.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ask reads one row for a check.
func (e *examination) ask(check, text string, into ...any) bool {
	found := false
	ok := e.rows(check, text, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(into...)
	})
	return ok && found
}

// slowTrip is a round-trip time that noticeably delays every settle and claim.
const slowTrip = 20 * time.Millisecond

// answer measures the response time of the database: the least of several, because the first ones
// connect.
func (e *examination) answer() error {
	least := time.Duration(1<<63 - 1)
	for range 5 {
		start := time.Now()
		if err := e.read(`SELECT 1`, func(*sql.Rows) error { return nil }); err != nil {
			return err
		}
		least = min(least, time.Since(start))
	}
	f := Finding{Check: "round trip", Status: OK, Found: fmt.Sprintf("the database answers within %v", round(least))}
	if least > slowTrip {
		f.Status = Warning
		f.Remedy = "run the program nearer to the database; until then raise ConsumerConfig.Prefetch, and ProducerConfig.Linger, so that more messages share a statement"
	}
	e.add(f)
	return nil
}

// skew is a clock difference that makes logs misleading.
const skew = 2 * time.Second

// clock compares the database's clock with that of this machine. No lease and no delay depends on
// this machine's clock.
func (e *examination) clock() {
	var ms int64
	text := map[string]string{
		"postgres":  `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
		"sqlserver": `SELECT DATEDIFF_BIG(millisecond, '19700101', SYSUTCDATETIME()) AS now`,
		"sqlite":    `SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)`,
	}[e.Dialect.Name()]
	before := time.Now()
	if !e.ask("clock", text, &ms) {
		return
	}
	took := time.Since(before)
	ahead := time.UnixMilli(ms).Sub(before.Add(took / 2))
	f := Finding{Check: "clock", Status: OK, Found: fmt.Sprintf("the database's clock and this machine's differ by %v", round(ahead.Abs()))}
	if ahead.Abs() > skew+took {
		f.Status, f.Remedy = Warning, "set both by NTP: leases and delays go by the database's clock and are right, but the times in logs of this machine are not comparable"
	}
	e.add(f)
}

// round rounds a duration to few digits.
func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
