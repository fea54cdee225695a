package chanqjobs

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/chanq/chanq"
)

// Why done is sent once, and never early. A batch is marked done by one UPDATE that requires done_at = 0, and its done
// job is sent in that transaction. After the UPDATE a statement of the same transaction looks at the range again:
//
//   - A job that adds others is in the range until its ack commits, and they are from then on, by the same commit. So
//     a statement that sees one commit state of the range sees one of them. On PostgreSQL a statement does (READ
//     COMMITTED), and on SQLite a transaction.
//   - On SQL Server a statement sees rows of different moments: it might pass the place of a new job before it is there,
//     and that of its parent after it has gone. So AddTx locks the row of the batch (shared: adds do not wait for each
//     other). The UPDATE passes over a row that is locked in this way, and excludes adds from then on: during the second
//     look, the range can only lose jobs.
//   - The lock also keeps out adds from outside of the batch, which no job of it covers. The second look must see those
//     that have committed before the UPDATE: on PostgreSQL by a snapshot that is later than the UPDATE. That is READ
//     COMMITTED, which is set because the default of a database can be REPEATABLE READ. On SQLite the UPDATE takes the
//     write lock, and no other transaction writes until the commit.
const (
	lookEvery = time.Second
	// idleEvery is the pause while no batch is open.
	idleEvery = 10 * time.Second
	// expectFor is how long Run looks each second after SendTx, whose transaction is still open then.
	expectFor = time.Minute
	// lookShare is how many times as long as a look took the pause after it is: looks are a tenth of the time.
	lookShare = 10
	// batchPatience is how long a look or a transaction can take.
	batchPatience = 10 * time.Second
	// longestRest is the longest pause for a batch whose done job keeps failing to be sent.
	longestRest = 30 * time.Second

	trimEvery = time.Minute
	// keepDone is how long a batch is kept after its end.
	keepDone = 7 * 24 * time.Hour
)

// Run sends the done jobs of batches, until ctx is cancelled, and then returns nil. It returns ErrNoSchema if the table is
// missing or the queue was dropped, and ErrNewerSchema if this program is too old. It reports all other errors to Failed,
// and goes on. Several processes share the work.
//
// While a batch of the queue is open, it polls each second, with one read that costs one seek per open batch. So done is
// sent within a second. Without one, it polls every 10 s; after SendTx in this process, each second for a minute. To
// send a done job takes a transaction of five round trips, six on PostgreSQL. Batches are kept for 7 days.
func (b *Batches) Run(ctx context.Context) error {
	cfg := chanq.Config{Dialect: b.names.Dialect, Schema: b.names.Schema, Durability: chanq.DurabilityAsIs}
	_, err := batchNames(ctx, b.db, cfg)
	for ; err != nil && ctx.Err() == nil; _, err = batchNames(ctx, b.db, cfg) {
		if errors.Is(err, chanq.ErrNoSchema) || errors.Is(err, chanq.ErrNewerSchema) {
			return err
		}
		b.Failed(err)
		b.pause(ctx, time.Now(), lookEvery, lookEvery)
	}
	r := batchRunner{b, map[chanq.ID]rest{}}
	expecting := time.Now().Add(expectFor)
	var trimmed time.Time
	for ctx.Err() == nil {
		began := time.Now()
		open, err := r.round(ctx)
		least := max(lookEvery, lookShare*time.Since(began))
		if err == nil && began.Sub(trimmed) > trimEvery {
			trimmed, err = began, r.trim(ctx)
		}
		if ctx.Err() != nil {
			break
		}
		pause := least
		if err != nil {
			if err := gone(ctx, b.db, b.names); err != nil {
				return err
			}
			b.Failed(err)
		} else if open == 0 && time.Now().After(expecting) {
			pause = max(least, idleEvery)
		}
		if b.pause(ctx, began, pause, least) {
			expecting = time.Now().Add(expectFor)
		}
	}
	return nil
}

// pause waits for d after began, or for least if a batch was sent, which it reports.
func (b *Batches) pause(ctx context.Context, began time.Time, d, least time.Duration) (sent bool) {
	t := time.NewTimer(time.Until(began.Add(d)))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return sent
		case <-b.wake:
			sent = true
			t.Reset(time.Until(began.Add(least)))
		case <-ctx.Done():
			return sent
		}
	}
}

// batchRunner is a call of Run.
type batchRunner struct {
	*Batches
	rests map[chanq.ID]rest // of batches whose done job could not be sent
}

// rest is how long a batch waits after a failure, so that it neither delays the others nor fills the log.
type rest struct {
	pause time.Duration
	until time.Time
}

// round ends the batches that are done. It returns how many were open.
func (r *batchRunner) round(ctx context.Context) (open int, err error) {
	ready, open, err := r.look(ctx)
	if err != nil {
		return 0, batchFailed("look at", chanq.ID{}, err)
	}
	rests := map[chanq.ID]rest{}
	var all []error
	for _, batch := range ready {
		last := r.rests[batch]
		if time.Now().After(last.until) {
			err := r.end(ctx, batch)
			if err == nil {
				continue
			}
			all = append(all, batchFailed("end", batch, err))
			last.pause = min(max(lookEvery, 2*last.pause), longestRest)
			last.until = time.Now().Add(last.pause)
		}
		rests[batch] = last
	}
	r.rests = rests
	return open, errors.Join(all...)
}

// look returns the open batches without jobs, in an order of this process, and how many are open.
func (r *batchRunner) look(ctx context.Context) (ready []chanq.ID, open int, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchPatience)
	defer cancel()
	rows, err := r.db.QueryContext(ctx, batchText(r.names, batchLookText), r.q.Name())
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var batch chanq.ID
		var live int
		if err := rows.Scan(&batch, &live); err != nil {
			return nil, 0, err
		}
		open++
		if live == 0 {
			ready = append(ready, batch)
		}
	}
	rand.Shuffle(len(ready), func(i, j int) { ready[i], ready[j] = ready[j], ready[i] })
	return ready, open, rows.Err()
}

// errLive: a job was added since the look.
var errLive = errors.New("a job of the batch is live")

// end marks a batch done and sends its done job, in one transaction, unless another process has, or a job is live.
func (r *batchRunner) end(ctx context.Context, batch chanq.ID) error {
	ctx, cancel := context.WithTimeout(ctx, batchPatience)
	defer cancel()
	err := chanq.InTx(ctx, r.db, func(ctx context.Context, tx *sql.Tx) error {
		if err := readCommitted(ctx, tx, r.names); err != nil {
			return err
		}
		result := BatchResult{Batch: batch}
		var message []byte
		err := queryRow(ctx, tx, batchText(r.names, batchDoneText), []any{idArg(r.names, batch)}, &result.Sent, &message)
		if errors.Is(err, sql.ErrNoRows) {
			return nil // it is done, or another transaction adds to it
		}
		live, jobs := 0, []any{idArg(r.names, batch), idArg(r.names, lastOf(batch))}
		if err == nil {
			err = queryRow(ctx, tx, batchText(r.names, batchLiveText), jobs, &live)
		}
		if err == nil && live != 0 {
			err = errLive
		}
		if err == nil {
			err = queryRow(ctx, tx, batchText(r.names, batchDeadText), jobs, &result.Dead)
		}
		if err != nil {
			return err
		}
		return r.sendDone(ctx, tx, message, result)
	})
	if errors.Is(err, errLive) {
		return nil
	}
	return err
}

// trim deletes batches that have been done for a long time.
func (r *batchRunner) trim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, batchPatience)
	defer cancel()
	_, err := r.db.ExecContext(ctx, batchText(r.names, batchTrimText), r.q.Name(), keepDone.Milliseconds())
	return batchFailed("trim", chanq.ID{}, err)
}
