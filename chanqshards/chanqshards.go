// Package chanqshards combines several databases, its shards, into one queue with a higher throughput than one database. Shards are
// schemas of one Citus cluster, files, or servers, also of different engines.
//
//	shards := []chanqshards.Shard{{Name: "east", DB: east}, {Name: "west", DB: west}}
//	err := chanqshards.Migrate(ctx, shards, "orders", chanq.Config{})
//	orders, err := chanqshards.Open[Order](ctx, shards, "orders", chanq.Config{})
//
// Each shard is a queue of package chanq, with its own Producer, Consumer and sessions. This package routes messages to shards, and
// merges the leases of all shards into one channel. Config.Label of a shard is the name of the queue and of the shard, as in
// "orders/east". It identifies the shard in errors, hooks and metrics.
//
// chanq calls the hooks Availability and Unsent on separate goroutines. For shards that it could not open, this package calls them on
// the goroutine that opens the shard or forwards messages to it. Flush, Close and Shutdown wait for that goroutine. If it does not
// return from opening the shard, Close and Shutdown leave it behind 1 s later.
//
// A shard whose database does not answer delays only its own messages. docs/operate/shards.md describes the differences from a queue in one
// database.
package chanqshards

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sourcegraph/conc"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

// Shard is one of the databases of a queue: its tables are in Schema of DB.
type Shard struct {
	// Name is for operators: errors, hooks and metrics identify the shard by the queue's name and this name, as in "orders/east".
	// Default: the shard's index.
	Name string
	// DB and Schema locate the tables. Two shards may be two schemas of one *sql.DB. Schema replaces chanq.Config.Schema. Default:
	// none, and the database's default schema.
	DB     *sql.DB
	Schema string
	// Notifier replaces chanq.Config.Notifier. Default: chanq.Config.Notifier.
	Notifier chanq.Notifier
}

func (s Shard) name(i int) string {
	if s.Name == "" {
		return strconv.Itoa(i)
	}
	return s.Name
}

// config returns the Config of shard i of n.
func (s Shard) config(queue string, cfg chanq.Config, i, n int, set chanq.ID) chanq.Config {
	if cfg.Label == "" {
		cfg.Label = queue
	}
	cfg.Label += "/" + s.name(i)
	cfg.Schema, cfg.Shard = s.Schema, chanq.ShardMark{Index: i, Count: n, Set: set}
	if keys := cfg.MaxKeys; keys > 0 { // divided among the shards
		if cfg.MaxKeys = keys / n; i < keys%n {
			cfg.MaxKeys++
		}
	}
	if s.Notifier != nil {
		cfg.Notifier = s.Notifier
	}
	return cfg
}

// list has the arguments of Migrate or Open.
type list struct {
	shards []Shard
	queue  string
	cfg    chanq.Config
}

// check returns all errors of the list.
func (l list) check(op string) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(l.shards) == 0 {
		wrong("shards is empty: must have at least 1 Shard")
	}
	names := map[string]bool{}
	for i, s := range l.shards {
		name := s.name(i)
		if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			wrong("Shard.Name is %.63q: must be UTF-8 without control characters", name)
		}
		if names[name] {
			wrong("Shard.Name is %q for two shards: must be unique", name)
		}
		names[name] = true
		for j, other := range l.shards[:i] {
			if s.DB != nil && s.DB == other.DB && s.Schema == other.Schema {
				wrong("Shard %q has the DB and the Schema of shard %q: must be another database, or another schema", name, other.name(j))
			}
		}
	}
	if l.cfg.Schema != "" {
		wrong("Config.Schema is %q: must be empty; set Shard.Schema of each shard", l.cfg.Schema)
	}
	if l.cfg.Shard != (chanq.ShardMark{}) {
		wrong("Config.Shard is %v: must be unset, since chanqshards sets it", l.cfg.Shard)
	}
	if keys, n := l.cfg.MaxKeys, len(l.shards); keys > 0 && keys < n {
		wrong("Spec.MaxKeys is %d: must be at least %d, the number of shards, which divide it", keys, n)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("chanq: %s %s: %w", op, l.queue, err)
	}
	return nil
}

func (l list) config(i int, set chanq.ID) chanq.Config {
	return l.shards[i].config(l.queue, l.cfg, i, len(l.shards), set)
}

// stored returns the Config that the database of shard i stores for the queue.
func (l list) stored(ctx context.Context, i int) (chanq.Config, error) {
	return chanq.StoredConfig(ctx, l.shards[i].DB, l.queue, l.config(i, chanq.ID{}))
}

// Migrate calls chanq.Migrate for each shard of a queue in order. The first shard determines the set of all shards, so several
// processes may call Migrate at the same time, and again after a call that failed. The number of shards and their order are
// permanent. To change them, migrate a queue of another name and drain the old one.
//
// Migrate checks all shards before it changes the first, by chanq.CheckMigrate: if one does not answer, has a queue of another kind,
// belongs to another list (chanq.ErrShards), is not durable, or lacks a permission, nothing is changed. Config.Schema and Config.Shard
// must be unset.
func Migrate(ctx context.Context, shards []Shard, queue string, cfg chanq.Config) error {
	l := list{shards, queue, cfg}
	if err := l.check("migrate"); err != nil {
		return err
	}
	if err := l.migratable(ctx); err != nil {
		return err
	}
	set := chanq.ID{}
	for i, s := range shards {
		if err := chanq.Migrate(ctx, s.DB, queue, l.config(i, set)); err != nil {
			return err
		}
		if i == 0 {
			first, err := l.stored(ctx, 0)
			if err != nil {
				return err
			}
			set = first.Shard.Set
		}
	}
	return nil
}

// migratable returns an error if a shard cannot be migrated. It changes nothing.
func (l list) migratable(ctx context.Context) error {
	found := make([]*chanq.Config, len(l.shards)) // nil: no tables yet
	look := func(i int) error {
		stored, err := l.stored(ctx, i)
		if errors.Is(err, chanq.ErrNoSchema) {
			return nil
		}
		found[i] = &stored
		return err
	}
	err := each(len(l.shards)-1, func(i int) error { return look(i + 1) })
	if err == nil {
		err = look(0) // last, because a process that migrates at the same time begins with it
	}
	if err != nil {
		return err
	}
	set := chanq.NewID() // the set of a new list; Migrate determines another one
	if found[0] != nil {
		set = found[0].Shard.Set
	}
	for i, stored := range found {
		if stored != nil && found[0] == nil {
			err := fmt.Errorf("%w: the database has %v, and shard %s has no tables: give all shards that were migrated, in their order", chanq.ErrShards, stored.Shard, l.shards[0].name(0))
			return &chanq.OpError{Op: "migrate", Queue: l.config(i, chanq.ID{}).Label, Err: err}
		}
	}
	return each(len(l.shards), func(i int) error {
		err := chanq.CheckMigrate(ctx, l.shards[i].DB, l.queue, l.config(i, set))
		if found[i] == nil && errors.Is(err, chanq.ErrShards) { // another process has migrated it since
			return nil
		}
		return err
	})
}

// Queue is a queue over several databases. It is safe for concurrent use, and holds no connection and no goroutine.
type Queue[T any] struct {
	name   string
	label  string // of all shards together
	places []*place[T]
}

// openPatience is how long Open waits for a shard that does not answer, if another one does.
const openPatience = 5 * time.Second

// Open opens a queue over several databases. The shards must be those passed to Migrate, in the same order. Otherwise the error is
// chanq.ErrShards. The guarantees of chanq.Open hold for each shard. Config.Schema and Config.Shard must be unset.
//
// Open contacts all shards at the same time, and waits until one answers. If a shard does not answer within 5 s, the producers and
// consumers try to open it until it answers. If such a shard then turns out to be the wrong one, the consumer ends, and sends to the
// shard fail.
//
// A message with a Key goes to the shard of the Key, otherwise one with a DedupKey to the shard of the DedupKey, and one with only an
// ID set by the caller to the shard of the ID. Any other message goes to the shard with the fewest messages to store. Therefore the
// messages of a key keep their order, and a message that is sent again is stored once.
func Open[T any](ctx context.Context, shards []Shard, queue string, cfg chanq.Config) (*Queue[T], error) {
	l := list{shards, queue, cfg}
	if err := l.check("open"); err != nil {
		return nil, err
	}
	set, missing, err := l.setOf(ctx)
	if err != nil {
		return nil, err
	}
	q := &Queue[T]{name: queue, label: cfg.Label, places: make([]*place[T], len(shards))}
	if q.label == "" {
		q.label = queue
	}
	bound, end := context.WithTimeout(ctx, openPatience)
	defer end()
	err = each(len(shards), func(i int) error {
		p := &place[T]{db: shards[i].DB, name: queue, cfg: l.config(i, set)}
		q.places[i] = p
		if missing[i] != nil {
			return nil
		}
		_, err := p.open(bound)
		if errors.Is(err, chanq.ErrUnavailable) {
			missing[i], err = err, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	none := !slices.ContainsFunc(q.places, func(p *place[T]) bool { return p.queue.Load() != nil })
	if err := errors.Join(missing...); err != nil && (none || ctx.Err() != nil) {
		return nil, err
	}
	return q, nil
}

// setOf returns the set of the first shard that answers, and the errors of shards that do not answer.
func (l list) setOf(ctx context.Context) (set chanq.ID, missing []error, err error) {
	bound, end := context.WithCancel(ctx)
	defer end()
	began := time.Now()
	marks := make([]chanq.ShardMark, len(l.shards))
	missing = make([]error, len(l.shards))
	err = each(len(l.shards), func(i int) error {
		stored, err := l.stored(bound, i)
		if errors.Is(err, chanq.ErrUnavailable) {
			missing[i] = err
			return nil
		}
		if errors.Is(err, chanq.ErrNoSchema) {
			return nil // opening the shard will return the error
		}
		marks[i] = stored.Shard
		time.AfterFunc(openPatience-time.Since(began), end) // for the shards that have not answered
		return err
	})
	for _, mark := range marks {
		if mark.Count > 0 {
			return mark.Set, missing, err
		}
	}
	return set, missing, err
}

// Name returns the queue's name.
func (q *Queue[T]) Name() string { return q.name }

// Shards returns the number of shards.
func (q *Queue[T]) Shards() int { return len(q.places) }

// Admin opens shard i, from 0 to Shards() - 1, for its operators, as chanqadmin.Open does, with the label of the shard.
func (q *Queue[T]) Admin(ctx context.Context, i int) (*chanqadmin.Queue, error) {
	if i < 0 || i >= len(q.places) {
		return nil, fmt.Errorf("chanq: admin %s: i is %d: must be from 0 to %d", q.label, i, len(q.places)-1)
	}
	p := q.places[i]
	return chanqadmin.Open(ctx, p.db, p.name, p.cfg)
}

// Shard returns shard i, from 0 to Shards() - 1, as a queue of package chanq: for SendTx, which needs the database of its
// transaction. The returned queue refuses messages that belong to another shard: see ShardOf. If the shard is not open yet, Shard
// tries once to open it.
func (q *Queue[T]) Shard(ctx context.Context, i int) (*chanq.Queue[T], error) {
	if i < 0 || i >= len(q.places) {
		return nil, fmt.Errorf("chanq: shard %s: i is %d: must be from 0 to %d", q.label, i, len(q.places)-1)
	}
	return q.places[i].open(ctx)
}

// ShardOf returns the index of the shard to which a message belongs by its Key, DedupKey or ID, or -1 if it has none of them and may
// go to any shard. It makes no database call.
func (q *Queue[T]) ShardOf(m chanq.Message[T]) int { return chanq.ShardOf(m, len(q.places)) }

// Origin returns the index of the shard that a lease came from, for Lease.AckTx: the transaction must be in that shard's database. It
// is -1 if the lease is not from this queue.
func (q *Queue[T]) Origin(l *chanq.Lease[T]) int {
	return slices.IndexFunc(q.places, func(p *place[T]) bool { return p.cfg.Label == l.Queue })
}

// Cancel deletes messages in all shards, as chanq.Queue.Cancel does. If some shards do not answer, it returns the IDs that the others
// found and an error that names those shards.
func (q *Queue[T]) Cancel(ctx context.Context, ids ...chanq.ID) ([]chanq.ID, error) {
	return q.inAll(ctx, func(shard *chanq.Queue[T]) ([]chanq.ID, error) { return shard.Cancel(ctx, ids...) })
}

// RunNow makes scheduled messages of all shards due now, as chanq.Queue.RunNow does. Its result is as in Cancel.
func (q *Queue[T]) RunNow(ctx context.Context, ids ...chanq.ID) ([]chanq.ID, error) {
	return q.inAll(ctx, func(shard *chanq.Queue[T]) ([]chanq.ID, error) { return shard.RunNow(ctx, ids...) })
}

// Find returns the IDs of ready, scheduled and leased messages of all shards with these DedupKeys, as chanq.Queue.Find does. Its result is
// that of Cancel.
func (q *Queue[T]) Find(ctx context.Context, keys ...string) ([]chanq.ID, error) {
	return q.inAll(ctx, func(shard *chanq.Queue[T]) ([]chanq.ID, error) { return shard.Find(ctx, keys...) })
}

// inAll calls f with each shard, and joins the IDs and the errors.
func (q *Queue[T]) inAll(ctx context.Context, f func(*chanq.Queue[T]) ([]chanq.ID, error)) ([]chanq.ID, error) {
	found := make([][]chanq.ID, len(q.places))
	err := each(len(q.places), func(i int) error {
		shard, err := q.places[i].open(ctx)
		if err == nil {
			found[i], err = f(shard)
		}
		return err
	})
	return slices.Concat(found...), err
}

// Empty reports whether all shards are empty, as chanq.Queue.Empty defines it, each at its own moment. It may miss a message that a
// handler in one shard sends to another shard whose answer has already arrived. If a shard does not answer, Empty returns false and
// an error that names the shard.
func (q *Queue[T]) Empty(ctx context.Context) (bool, error) {
	empty := make([]bool, len(q.places))
	err := each(len(q.places), func(i int) error {
		shard, err := q.places[i].open(ctx)
		if err == nil {
			empty[i], err = shard.Empty(ctx)
		}
		return err
	})
	return !slices.Contains(empty, false), err
}

// Wake makes idle consumers of all shards poll immediately: see chanq.Queue.Wake.
func (q *Queue[T]) Wake() {
	for _, p := range q.places {
		if shard := p.queue.Load(); shard != nil {
			shard.Wake()
		}
	}
}

// each calls f with the indexes below n at the same time, and joins the errors. A panic of f propagates to the caller.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var calls conc.WaitGroup
	for i := range n {
		calls.Go(func() { errs[i] = f(i) })
	}
	calls.Wait()
	return errors.Join(errs...)
}
