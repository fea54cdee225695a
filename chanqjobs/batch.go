package chanqjobs

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/chanq/chanq"
)

// The ID of a batch is a UUIDv8: the time in milliseconds and 34 random bits, and five bytes that are 0. The IDs of its
// jobs have a number in these bytes: from 1 on for those of SendTx, and a random one from addedFrom on for those of
// AddTx. So the jobs of a batch are a range of the primary key of their queue, and whether one is left is one seek.
//
// A send with an ID that is in the queue counts as stored, so a number that is drawn twice would lose a job. AddTx looks
// for that. It cannot see what another open transaction adds to the same batch: with 32 of them and 4 jobs in each, one
// call in 2 * 10^9 loses a job.
const (
	batchVersion = 8
	numberAt     = 11 // the first byte of the number
	addedFrom    = 1 << 39
	lastNumber   = 1<<40 - 1
	// mostJobs is how many jobs a call can send.
	mostJobs = 1_000_000
)

// NewBatch returns the ID of a new batch, for Batches.SendTx.
func NewBatch() chanq.ID {
	id := chanq.NewID()
	_, _ = crand.Read(id[6:numberAt]) // it does not fail. The bits of the clock there are equal in several processes
	id[6] = batchVersion<<4 | id[6]&0x0f
	id[8] = 0x80 | id[8]&0x3f
	return numbered(id, 0)
}

func numbered(batch chanq.ID, n uint64) chanq.ID {
	for i := len(batch) - 1; i >= numberAt; i-- {
		batch[i], n = byte(n), n>>8
	}
	return batch
}

// lastOf returns the last ID of a batch.
func lastOf(batch chanq.ID) chanq.ID { return numbered(batch, lastNumber) }

// isBatch reports whether an ID is one of NewBatch, or of a job of a batch.
func isBatch(id chanq.ID) bool { return id[6]>>4 == batchVersion }

// InBatch returns the batch of a job, and whether it is in one.
func InBatch(d *chanq.Delivery) (batch chanq.ID, is bool) {
	batch = numbered(d.ID, 0)
	if !isBatch(d.ID) || batch == d.ID {
		return chanq.ID{}, false
	}
	return batch, true
}

// BatchResult is the result of a batch, for its done job.
type BatchResult struct {
	Batch chanq.ID `json:"batch"`
	Sent  int      `json:"sent"` // how many jobs SendTx was given
	Dead  int      `json:"dead"` // how many jobs were dead at the end, also of those that were added
}

// resultHeader has the BatchResult of a done job, in JSON.
const resultHeader = "chanq-batch"

// BatchOf returns the result of a batch, in the handler of its done job. For other jobs it returns false.
func BatchOf(d *chanq.Delivery) (r BatchResult, is bool) {
	err := json.Unmarshal([]byte(d.Headers[resultHeader]), &r)
	return r, err == nil
}

// Errors to compare with errors.Is.
var (
	// ErrBatchDone: the batch is done, so nothing can be added. Send the jobs without a batch, or in a new one.
	ErrBatchDone = errors.New("the batch is done")
	// ErrBatchSent: the batch is in the database already, for example because a commit of unknown outcome was applied.
	ErrBatchSent = errors.New("the batch is stored already")
	// ErrOtherBatch: the ID belongs to another batch, with another queue, kind of the done job, or number of jobs. Nothing
	// is stored. Call NewBatch again.
	ErrOtherBatch = errors.New("the ID belongs to another batch: call NewBatch again")
	// ErrNoBatch: there is no batch with this ID in the queue. A batch is trimmed 7 days after its end.
	ErrNoBatch = errors.New("no such batch")
)

// Batches sends batches of jobs to a queue, and for each of them a done job when all of its jobs have ended. It is safe
// for concurrent use. Run is its only goroutine.
//
// Its BatchTable includes the batches of other queues of the schema.
type Batches struct {
	*BatchTable
	// Failed is called by Run with each error after which it continues, for example in an outage. Set it before Run.
	// Default: slog.Error.
	Failed func(error)

	q    *chanq.Queue[Job]
	wake chan struct{} // a batch was sent; capacity 1
}

// NewBatches returns the batches of a queue. It costs no round trip.
func NewBatches(q *chanq.Queue[Job]) *Batches {
	return &Batches{
		BatchTable: &BatchTable{q.DB(), q.Names()},
		Failed:     func(err error) { slog.Error(err.Error()) },
		q:          q,
		wake:       make(chan struct{}, 1),
	}
}

// SendTx stores a batch of jobs in your transaction. When all of them are acked, dead or cancelled, the job done is sent
// to the same queue, once. It has the ID of the batch, and BatchOf says how many jobs are dead. Without jobs, it is sent
// in your transaction.
//
// A call takes up to 1,000,000 jobs, and encodes 5,000 at a time. To send more, let a job of the batch add them, in as
// many transactions as you like. Leave the IDs of all messages unset. After an error, roll back. ErrBatchSent: a former
// call has stored the batch. It costs one round trip more than SendTx of the jobs.
func (b *Batches) SendTx(ctx context.Context, tx chanq.Tx, batch chanq.ID, done chanq.Message[Job], ms ...chanq.Message[Job]) error {
	return batchFailed("send", batch, b.sendTx(ctx, tx, batch, done, ms))
}

func (b *Batches) sendTx(ctx context.Context, tx chanq.Tx, batch chanq.ID, done chanq.Message[Job], ms []chanq.Message[Job]) error {
	if err := b.check(ctx, tx, batch, ms); err != nil {
		return err
	}
	message, err := b.encode(batch, done)
	if err != nil {
		return fmt.Errorf("the done job: %w", err)
	}
	empty := 0
	if len(ms) == 0 {
		empty = 1
	}
	var stored chanq.ID
	row := []any{idArg(b.names, batch), idArg(b.names, lastOf(batch)), b.q.Name(), len(ms), message, empty}
	err = queryRow(ctx, tx, batchText(b.names, batchAddText), row, &stored)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return b.sentBefore(ctx, tx, Batch{ID: batch, Queue: b.q.Name(), Done: done.Type, Sent: len(ms)})
	case err == nil && empty == 1:
		return b.sendDone(ctx, tx, message, BatchResult{Batch: batch})
	case err == nil:
		err = b.send(ctx, tx, batch, 1, ms)
	}
	b.awake()
	return err
}

// sentBefore returns ErrBatchSent if the stored batch is the wanted one. The body of the done job says nothing: a codec can
// encode it differently each time.
func (b *Batches) sentBefore(ctx context.Context, tx chanq.Tx, want Batch) error {
	var stored Batch
	columns, done := stored.columns()
	err := queryRow(ctx, tx, batchText(b.names, batchStatusText), []any{idArg(b.names, want.ID)}, columns...)
	if err = cmp.Or(err, done()); err != nil {
		return err
	}
	if stored.Made, stored.Ended = want.Made, want.Ended; stored != want {
		return ErrOtherBatch
	}
	return ErrBatchSent
}

// AddTx stores more jobs of a batch in your transaction. In the handler of a job of the batch (InBatch), ack the job in
// the same transaction: then the batch is open until the new jobs have left the queue as well. Elsewhere it can be done:
// ErrBatchDone. ErrNoBatch: the batch is not in this queue. It is not marked done while your transaction is open.
//
// It costs one round trip more than SendTx of the jobs. After an error, roll back.
func (b *Batches) AddTx(ctx context.Context, tx chanq.Tx, batch chanq.ID, ms ...chanq.Message[Job]) error {
	return batchFailed("add to", batch, b.addTx(ctx, tx, batch, ms))
}

func (b *Batches) addTx(ctx context.Context, tx chanq.Tx, batch chanq.ID, ms []chanq.Message[Job]) error {
	if err := b.check(ctx, tx, batch, ms); err != nil {
		return err
	}
	if len(ms) == 0 {
		return nil
	}
	for {
		first := addedFrom + rand.Uint64N(addedFrom-mostJobs)
		free, err := b.hold(ctx, tx, batch, first, len(ms))
		switch {
		case err != nil:
			return err
		case free:
			return b.send(ctx, tx, batch, first, ms)
		}
	}
}

// hold keeps an open batch from being marked done until the end of tx. It reports whether n numbers from first on are
// free.
func (b *Batches) hold(ctx context.Context, tx querier, batch chanq.ID, first uint64, n int) (free bool, err error) {
	args := []any{idArg(b.names, batch), b.q.Name(), idArg(b.names, numbered(batch, first)),
		idArg(b.names, numbered(batch, first+uint64(n)-1))}
	var doneAt int64
	taken := 0
	err = queryRow(ctx, tx, batchText(b.names, batchHoldText), args, &doneAt, &taken)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = ErrNoBatch
	case err == nil && doneAt > 0:
		err = ErrBatchDone
	}
	return taken == 0, err
}

// check checks the arguments of SendTx and AddTx, without a round trip.
func (b *Batches) check(ctx context.Context, tx chanq.Tx, batch chanq.ID, ms []chanq.Message[Job]) error {
	if _, err := b.q.SendTx(ctx, tx); err != nil { // which checks tx
		return err
	}
	given := func(m chanq.Message[Job]) bool { return !m.ID.IsZero() }
	switch {
	case !isBatch(batch) || numbered(batch, 0) != batch:
		return errors.New("the ID of the batch must be one of NewBatch")
	case len(ms) > mostJobs:
		return fmt.Errorf("%d jobs: must be at most %d; let a job of the batch add the others", len(ms), mostJobs)
	case slices.ContainsFunc(ms, given):
		return errors.New("Message.ID of a job must be unset: the batch sets it")
	}
	return nil
}

// encode checks a done job, and returns it as it is stored.
func (b *Batches) encode(batch chanq.ID, done chanq.Message[Job]) ([]byte, error) {
	switch {
	case done.Type == "":
		return nil, errors.New("Message.Type must be set: make it with Kind.New")
	case !done.ID.IsZero():
		return nil, errors.New("Message.ID must be unset: it has the ID of the batch")
	case done.DedupKey != "":
		return nil, errors.New("Message.DedupKey must be unset: with a key that is taken, it would not be stored")
	}
	m := chanq.Message[[]byte]{ID: batch, Type: done.Type, Headers: done.Headers, Priority: done.Priority, Delay: done.Delay,
		TTL: done.TTL, Key: done.Key}
	done.ID, done.Headers = batch, withResult(m.Headers, BatchResult{batch, mostJobs, math.MaxInt32})
	var err error
	if m.Body, err = b.q.Encode(done); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// withResult returns headers with a result.
func withResult(headers map[string]string, r BatchResult) map[string]string {
	data, _ := json.Marshal(r)
	all := map[string]string{}
	maps.Copy(all, headers)
	all[resultHeader] = string(data)
	return all
}

// sendDone sends a stored done job.
func (b *Batches) sendDone(ctx context.Context, tx chanq.Tx, message []byte, r BatchResult) error {
	m, err := storedDone(message)
	if err == nil {
		m.Headers = withResult(m.Headers, r)
		_, err = b.q.Raw().SendTx(ctx, tx, m)
	}
	return err
}

// chunk is how many jobs are encoded at a time.
const chunk = 5000

// send sends jobs with numbers from first on.
func (b *Batches) send(ctx context.Context, tx chanq.Tx, batch chanq.ID, first uint64, ms []chanq.Message[Job]) error {
	for part := range slices.Chunk(ms, chunk) {
		part = slices.Clone(part)
		for i := range part {
			part[i].ID = numbered(batch, first)
			first++
		}
		if _, err := b.q.SendTx(ctx, tx, part...); err != nil {
			return err
		}
	}
	return nil
}

// awake makes Run look each second for a while.
func (b *Batches) awake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
