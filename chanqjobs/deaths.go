package chanqjobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// DeathFunc reacts to a dead message of a queue. Its statements in tx, such as a SendTx, are committed together with the note that it has
// noticed this death, or not at all. It has a minute, after which ctx is cancelled. Kind.Decode decodes the body of a job.
type DeathFunc func(ctx context.Context, tx *sql.Tx, dead chanqadmin.Entry) error

// Deaths calls a function for each dead message of a queue, whatever the cause: also for one that expired or crashed its processes, which no
// handler sees. Run it in any number of processes.
//
// It calls the function once for each death, if you count the calls whose transaction is committed: a message that is redriven and dies again
// has died twice. One that is redriven, purged or trimmed first is never noticed. If the function fails, its transaction is rolled back, and
// tried again after pauses of 1 s to 5 min. New deaths do not wait for it.
//
// A message that died before its table had the column noticed_at (version 3) is not noticed.
type Deaths struct {
	// Failed is called by Run with each error after which it goes on: the function failed, or the database was down. Set it before Run.
	// Default: slog.Error.
	Failed func(error)

	q  *chanq.Queue[[]byte]
	fn DeathFunc
}

// NewDeaths returns the Deaths of a queue. It costs no round trip.
func NewDeaths[T any](q *chanq.Queue[T], fn DeathFunc) *Deaths {
	if fn == nil {
		panic("chanqjobs: deaths: the function is nil")
	}
	return &Deaths{Failed: func(err error) { slog.Error(err.Error()) }, q: q.Raw(), fn: fn}
}

const (
	// deathsEvery is how often Run looks for deaths, and the first pause after a failure.
	deathsEvery = time.Second
	// longestDeath is the longest pause after failures of one message.
	longestDeath = 5 * time.Minute
	// noticeFor bounds the function for one message, and each read.
	noticeFor = time.Minute
	// together is how many messages are noticed at a time, so that a slow one does not delay the others.
	together = 4
	// again is how many of them can be those that have failed before, so that new deaths do not wait for these.
	again = 3
	// mostDeaths is how many deaths one read returns. If more of them rest after failures, a new one is found some reads later.
	mostDeaths = 1000
)

// Run notices deaths until ctx is cancelled, and then returns nil. It is a Part. It returns ErrNoSchema if the tables are missing or too old,
// and ErrNewerSchema if this program is; it reports all other errors to Failed, and goes on.
//
// It looks once per second: one statement, which reads the index of the deaths that are not noticed yet. Each of these costs a read of the
// message, and a transaction with one statement in addition to yours. If several processes find one death, one of them notices it, and the
// others do not wait. On SQLite the file has one writer: your function delays all others.
func (d *Deaths) Run(ctx context.Context) error {
	names := d.q.Names()
	cfg := chanq.Config{Dialect: names.Dialect, Schema: names.Schema, Label: d.q.Label()}
	queue, err := chanqadmin.Open(ctx, d.q.DB(), names.Queue, cfg)
	for ; err != nil && ctx.Err() == nil; queue, err = chanqadmin.Open(ctx, d.q.DB(), names.Queue, cfg) {
		if errors.Is(err, chanq.ErrNoSchema) || errors.Is(err, chanq.ErrNewerSchema) {
			return err
		}
		d.Failed(err)
		pause(ctx, deathsEvery)
	}
	r := deathRun{
		Deaths: d, queue: queue, look: deathText(names, lookText), mark: deathText(names, markText),
		tries: map[death]*try{}, busy: make(chan struct{}, together), again: make(chan struct{}, again),
	}
	defer r.all.Wait()
	for ctx.Err() == nil {
		next := time.Now().Add(deathsEvery)
		more, err := r.round(ctx)
		if err != nil && ctx.Err() == nil {
			if err := gone(ctx, d.q.DB(), names); err != nil {
				return err
			}
			d.Failed(fmt.Errorf("chanq: deaths of %s: %w", d.q.Label(), err))
		}
		if !more {
			pause(ctx, time.Until(next))
		}
	}
	return nil
}

// death is one death of a message. at is when, in Unix milliseconds.
type death struct {
	id chanq.ID
	at int64
}

// try is what a process knows of a death that it could not notice yet.
type try struct {
	running bool
	rest    time.Duration
	until   time.Time // when its rest ends
	seen    int       // in this pass
}

// deathRun is a call of Run. Its goroutines each notice one message.
type deathRun struct {
	*Deaths
	queue      *chanqadmin.Queue
	look, mark string
	after      death // where the next read begins
	pass       int   // over all deaths that are not noticed

	all   sync.WaitGroup
	busy  chan struct{} // has an element for each running goroutine
	again chan struct{} // and for each of them whose death has failed before

	mu    sync.Mutex // guards tries; never held over a statement or a call of the function
	tries map[death]*try
}

// round reads deaths and begins to notice them. It reports whether there are more, after it has begun some.
func (r *deathRun) round(ctx context.Context) (more bool, err error) {
	list, err := r.read(ctx)
	if err != nil {
		return false, err
	}
	last := death{}
	if len(list) > 0 {
		last = list[len(list)-1]
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) // processes share them
	soon, cancel := context.WithTimeout(ctx, deathsEvery)                           // then it looks for new ones
	defer cancel()
	for _, repeated := range []bool{false, true} {
		for _, found := range list {
			if !r.due(found, repeated) {
				continue
			}
			if repeated {
				select {
				case r.again <- struct{}{}:
				case <-soon.Done():
					continue
				}
			}
			select {
			case r.busy <- struct{}{}:
			case <-ctx.Done():
				return false, nil
			}
			more = true
			r.begin(ctx, found, repeated)
		}
	}
	if len(list) == mostDeaths {
		r.after = last
		return more, nil
	}
	r.after = death{}
	r.forget()
	return false, nil
}

// due reports whether a death neither runs nor rests, and is a repeated or a new one.
func (r *deathRun) due(found death, repeated bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tries[found]
	if t == nil {
		t = &try{}
		r.tries[found] = t
	}
	t.seen = r.pass
	return !t.running && time.Now().After(t.until) && repeated == (t.rest > 0)
}

// begin notices a death in a goroutine, for which there is room.
func (r *deathRun) begin(ctx context.Context, found death, repeated bool) {
	r.mu.Lock()
	r.tries[found].running = true
	r.mu.Unlock()
	r.all.Go(func() {
		err := errExited
		defer func() { // also after runtime.Goexit
			r.end(found, err)
			<-r.busy
			if repeated {
				<-r.again
			}
			if err != nil && !errors.Is(err, errElsewhere) && ctx.Err() == nil {
				r.Failed(fmt.Errorf("chanq: death of %s %s: %w", r.q.Label(), found.id, err))
			}
		}()
		err = r.notice(ctx, found)
	})
}

// end notes how it ended.
func (r *deathRun) end(found death, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tries[found]
	t.running = false
	if err == nil || errors.Is(err, errElsewhere) {
		delete(r.tries, found)
		return
	}
	t.rest = min(max(deathsEvery, 2*t.rest), longestDeath)
	t.until = time.Now().Add(t.rest)
}

// forget ends a pass: what it has not seen was noticed by another process, redriven or purged.
func (r *deathRun) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for found, t := range r.tries {
		if !t.running && t.seen != r.pass {
			delete(r.tries, found)
		}
	}
	r.pass++
}

// errElsewhere: another process notices the death, or it was redriven or purged.
var errElsewhere = errors.New("noticed elsewhere")

// errExited: the function ended its goroutine.
var errExited = errors.New("the function called runtime.Goexit")

// notice calls the function for one death.
func (r *deathRun) notice(ctx context.Context, found death) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, noticeFor)
	defer cancel()
	dead, err := r.queue.Get(ctx, found.id)
	switch {
	case errors.Is(err, chanq.ErrNotFound):
		return errElsewhere
	case err != nil:
		return err
	case dead.State != chanqadmin.StateDead || dead.EndedAt.UnixMilli() != found.at:
		return errElsewhere
	}
	return chanq.InTx(ctx, r.q.DB(), func(ctx context.Context, tx *sql.Tx) error {
		if err := readCommitted(ctx, tx, r.q.Names()); err != nil {
			return err
		}
		var marked int64
		err := queryRow(ctx, tx, r.mark, []any{idArg(r.q.Names(), found.id), dead.Fence}, &marked)
		if errors.Is(err, sql.ErrNoRows) {
			return errElsewhere
		}
		if err != nil {
			return err
		}
		return r.fn(ctx, tx, dead)
	})
}

func (r *deathRun) read(ctx context.Context) (list []death, err error) {
	ctx, cancel := context.WithTimeout(ctx, noticeFor)
	defer cancel()
	rows, err := r.q.DB().QueryContext(ctx, r.look, r.after.at, idArg(r.q.Names(), r.after.id))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var found death
		var id []byte
		if err := rows.Scan(&id, &found.at); err != nil {
			return nil, err
		}
		copy(found.id[:], id)
		list = append(list, found)
	}
	return list, rows.Err()
}

const (
	// lookText reads the index of new deaths from a place on. It waits for no other transaction.
	lookText = `SELECT {top}{id bytes} AS id, {ms of ended_at} AS at FROM {dead}{past readers}
WHERE noticed_at = {new} AND ended_at >= {time ?1} AND (ended_at > {time ?1} OR id > ?2)
ORDER BY ended_at, id{limit}`
	// markText seeks the row by its key. It finds none if another process has locked it: that one notices it.
	markText = `UPDATE {dead}{past} SET noticed_at = {time now}{output}
WHERE {row} AND noticed_at = {new}{returning}`
)

// deathText returns a text for the database.
func deathText(n chanq.Names, text string) string {
	limit := fmt.Sprint(mostDeaths)
	switch n.Dialect {
	case chanq.DialectSQLServer:
		return render(n, text, "{top}", "TOP ("+limit+") ", "{limit}", "", "{id bytes}", "id",
			"{ms of ended_at}", "DATEDIFF_BIG(millisecond, '19700101', ended_at)", "{new}", "'19700101'", "{time now}", "SYSUTCDATETIME()",
			"{time ?1}", "DATEADD(millisecond, CONVERT(int, ?1 % 86400000), DATEADD(day, CONVERT(int, ?1 / 86400000), CONVERT(datetime2(3), '19700101')))",
			"{past readers}", " WITH (READPAST, READCOMMITTEDLOCK)", "{past}", " WITH (READPAST, ROWLOCK)",
			"{row}", "id = ?1 AND fence = ?2", "{output}", "\nOUTPUT inserted.fence", "{returning}", "")
	case chanq.DialectPostgres:
		text = strings.NewReplacer("{id bytes}", "uuid_send(id)",
			"{row}", "id = (SELECT id FROM {dead} WHERE id = ?1 AND fence = ?2 AND noticed_at = 0 FOR UPDATE SKIP LOCKED)").Replace(text)
	}
	return render(n, text, "{top}", "", "{limit}", "\nLIMIT "+limit, "{id bytes}", "id", "{ms of ended_at}", "ended_at", "{new}", "0",
		"{time now}", "{now}", "{time ?1}", "?1", "{past readers}", "", "{past}", "", "{row}", "id = ?1 AND fence = ?2",
		"{output}", "", "{returning}", "\nRETURNING fence")
}
