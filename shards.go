package chanq

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

	"github.com/chanq/chanq/sqlbatch"
)

// One queue over several places. Each shard is a queue like any other, which remembers that
// it is one: which, of how many, and of which set. Where a message goes is in spread.go, how
// leases of all come together in merge.go.

// Shard is one of the places that a queue is spread over: its tables are in Schema of DB.
type Shard struct {
	// Name is for operators: it is in errors and events. Default: the shard's index.
	Name string
	// DB and Schema are where the tables are. Two shards may be in two schemas of one
	// *sql.DB. Schema is in place of Config.Schema; "" is the database's default.
	DB     *sql.DB
	Schema string
	// Bell is in place of Config.Bell; nil is that, or the one that DB has by itself.
	Bell Bell
}

// ShardMark is what the tables of a shard remember: that they are shard Index, from 0, of
// Count (at most 256), all of which have the same Set.
type ShardMark struct {
	Index int `json:"index"`
	Count int `json:"count"` // 0: the queue has no shards
	Set   ID  `json:"set"`
}

// check checks the mark of a Config.
func (m ShardMark) check(v *validator) {
	switch {
	case m.Count == 0 && m != ShardMark{}:
		v.wrong("Config.Shard.Count is 0: must be the number of shards, where Index or Set is given")
	case m.Count < 0 || m.Count > sqlbatch.MaxShards:
		v.wrong("Config.Shard.Count is %d: must be from 0 (the queue has no shards) to %d", m.Count, sqlbatch.MaxShards)
	case m.Count > 0 && (m.Index < 0 || m.Index >= m.Count):
		v.wrong("Config.Shard.Index is %d: must be from 0 to %d, since Count is %d", m.Index, m.Count-1, m.Count)
	}
}

func (m ShardMark) String() string {
	if m.Count == 0 {
		return "a queue by itself"
	}
	return fmt.Sprintf("shard %d of %d, of the set %s", m.Index, m.Count, m.Set)
}

// isNot says why tables with this mark are not those that a program wants, whose Set is zero for
// any, or nil.
func (m ShardMark) isNot(wanted ShardMark) error {
	switch {
	case m.Index == wanted.Index && m.Count == wanted.Count && (wanted.Set.IsZero() || m.Set == wanted.Set):
		return nil
	case wanted.Count == 0:
		return fmt.Errorf("%w: the database says: %v; open all shards with chanqshards.Open, or this one with what StoredConfig returns", ErrShards, m)
	case m.Count == 0:
		return fmt.Errorf("%w: the database says: %v; it is no shard, and cannot become one: migrate shards of another name, and drain it into them", ErrShards, m)
	}
	wants := fmt.Sprintf("shard %d of %d", wanted.Index, wanted.Count)
	if !wanted.Set.IsZero() {
		wants = wanted.String()
	}
	return fmt.Errorf("%w: this program takes it for %s, and the database says: %v; give the places that were migrated, all of them, in their order", ErrShards, wants, m)
}

// MigrateShards is Migrate of each shard of a queue, one after the other. The first, that
// with index 0, says to which set they belong: so processes may call it at the same time, and
// again after one of them failed. The number of shards and their order are for ever: to
// change them, drain into a queue of another name. What is there already and is no shard, or
// another one, is left alone: ErrShards. All are looked at before anything is changed: so nothing is
// where one of them does not answer, or is not what it should be. What that does not show, a right that
// is missing, say, leaves those before it migrated. Config.Schema and Config.Shard must be unset.
func MigrateShards(ctx context.Context, shards []Shard, name string, cfg Config) error {
	if err := checkShards("migrate", name, shards, cfg); err != nil {
		return err
	}
	if err := checkPlaces(ctx, shards, name, cfg); err != nil {
		return err
	}
	mark := ShardMark{Count: len(shards)}
	for i, s := range shards {
		mark.Index = i
		own := s.config(cfg, mark)
		err := alter(ctx, "migrate", s.DB, name, own, func(q *queue, run runner) error {
			err := q.migrate(run, own.Slots)
			mark.Set = q.cfg.Shard.Set
			return err
		})
		if err != nil {
			return inShard(s.name(i), err)
		}
	}
	return nil
}

// checkPlaces says why not all of shards can be migrated, or nil. It changes nothing.
func checkPlaces(ctx context.Context, shards []Shard, name string, cfg Config) error {
	marks := make([]ShardMark, len(shards))
	check := func(i int) error {
		own := shards[i].config(cfg, ShardMark{Index: i, Count: len(shards)})
		q, err := newQueue("migrate", shards[i].DB, name, own)
		if err != nil {
			return inShard(shards[i].name(i), err)
		}
		if marks[i], err = q.migratable(ctx, own.Slots); err != nil {
			return &OpError{Op: "migrate", Queue: name, Shard: shards[i].name(i), Err: err}
		}
		return nil
	}
	err := togetherOf(len(shards)-1, func(i int) error { return check(i + 1) })
	if err == nil {
		err = check(0) // last: where another process migrates them, that one is first
	}
	if err != nil {
		return err
	}
	for i, mark := range marks {
		switch {
		case mark.Count == 0: // it is to be made
			continue
		case marks[0].Count == 0:
			err = fmt.Errorf("%w: the database says: %v; and shard %s has no tables, which is migrated first; give the places that were migrated, all of them, in their order", ErrShards, mark, shards[0].name(0))
		default:
			err = mark.isNot(ShardMark{Index: i, Count: len(shards), Set: marks[0].Set})
		}
		if err != nil {
			return &OpError{Op: "migrate", Queue: name, Shard: shards[i].name(i), Err: err}
		}
	}
	return nil
}

// migratable says why migrate would refuse the tables of a queue, or whose shard they are, of no set
// where they are to be made. It waits for no driver that does not return.
func (q *queue) migratable(ctx context.Context, slots int) (mark ShardMark, err error) {
	s := openOnce(q.db, q.dialect)
	defer s.close()
	run := func(st sqlbatch.Statement, scan func(*sql.Rows) error) error { return s.Run(ctx, st, scan) }
	if err := q.trust(run); err != nil {
		return mark, err
	}
	found, err := q.stored(run)
	switch {
	case err != nil || found.version == 0:
		return mark, err
	case found.version > sqlbatch.Version:
		return mark, newer(found.version)
	}
	return found.shard, found.differs(&q.cfg, slots)
}

// OpenShards opens a queue whose messages are spread over several places, so that it holds and
// moves more than one of them could: schemas of one Citus, or servers of any engine, of
// several kinds even. What Open says goes for each; they are asked at the same time. They must
// be the ones that MigrateShards made, in the same order: else ErrShards. One that does not answer
// within 5 s is asked again before it is used for the first time, once at least one other has
// answered: what is wrong with it then ends the consumer, and fails what is sent there.
// Config.Schema and Config.Shard must be unset.
//
// A message with a Key goes to the shard of that, else one with a DedupKey, or an ID that the
// caller gave; what has none of these goes where the least waits to be stored. So keys keep
// their order, and a message that is sent again meets itself. Consumers read all shards, one
// lease of each in turn. A place that is away delays what is in it, or must go to it, and
// nothing else. docs/shards.md says more.
func OpenShards[T any](ctx context.Context, shards []Shard, name string, cfg Config) (*Queue[T], error) {
	if err := checkShards("open", name, shards, cfg); err != nil {
		return nil, err
	}
	cores := make([]*queue, len(shards))
	missing := make([]error, len(shards))
	bound, end := context.WithCancel(ctx)
	defer end()
	began := time.Now()
	err := togetherOf(len(shards), func(i int) (err error) {
		cores[i], missing[i], err = openShard(bound, shards, i, name, cfg)
		if err == nil && missing[i] == nil {
			time.AfterFunc(openPatience-time.Since(began), end) // for the shards that have not answered
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	first := slices.IndexFunc(missing, func(err error) bool { return err == nil })
	if err := joined(missing); err != nil && (first < 0 || ctx.Err() != nil) {
		return nil, err
	}
	for i, core := range cores {
		if missing[i] != nil {
			err = core.takeFor(cores[first])
		} else {
			err = core.cfg.Shard.isNot(ShardMark{Index: i, Count: len(shards), Set: cores[first].cfg.Shard.Set})
		}
		if err != nil {
			return nil, &OpError{Op: "open", Queue: name, Shard: core.shard, Err: err}
		}
	}
	return whole[T](cores...), nil
}

// openShard opens one of shards. missing is why it could not be asked.
func openShard(ctx context.Context, shards []Shard, i int, name string, cfg Config) (core *queue, missing, err error) {
	s := shards[i]
	own := s.config(cfg, ShardMark{Index: i, Count: len(shards)})
	if core, err = openCore(ctx, s.DB, name, own); err != nil {
		err = inShard(s.name(i), err)
		var wrong error
		if core, wrong = newQueue("open", s.DB, name, own); wrong != nil || !core.isAway(err) {
			return nil, nil, err
		}
		missing = err
	}
	core.shard = s.name(i)
	return core, missing, nil
}

// checkShards checks what op was given.
func checkShards(op, queue string, shards []Shard, cfg Config) error {
	v := validator{}
	if n := len(shards); n < 1 || n > sqlbatch.MaxShards {
		v.wrong("%d shards: must be from 1 to %d", n, sqlbatch.MaxShards)
	}
	names := map[string]bool{}
	for i, s := range shards {
		name := s.name(i)
		if len(name) > sqlbatch.MaxMemberText || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			v.wrong("Shard.Name %.63q of %d bytes: must be at most %d, of UTF-8 without control characters", name, len(name), sqlbatch.MaxMemberText)
		}
		if names[name] {
			v.wrong("Shard.Name %q: two shards have it", name)
		}
		names[name] = true
	}
	if cfg.Schema != "" {
		v.wrong("Config.Schema is %q: give each shard its own in Shard.Schema", cfg.Schema)
	}
	if cfg.Shard != (ShardMark{}) {
		v.wrong("Config.Shard is %v: it is for one shard by itself", cfg.Shard)
	}
	if err := v.err(); err != nil {
		return fmt.Errorf("chanq: %s %s: %w", op, queue, err)
	}
	return nil
}

func (s Shard) name(i int) string {
	if s.Name == "" {
		return strconv.Itoa(i)
	}
	return s.Name
}

// config is that of a shard.
func (s Shard) config(cfg Config, mark ShardMark) Config {
	cfg.Schema, cfg.Shard = s.Schema, mark
	if n := cfg.MaxKeys; n > 0 && mark.Count > 0 { // all shards have it together
		if cfg.MaxKeys = n / mark.Count; mark.Index < n%mark.Count {
			cfg.MaxKeys++
		}
	}
	if s.Bell != nil {
		cfg.Bell = s.Bell
	}
	return cfg
}

// inShard says of which shard an error is.
func inShard(name string, err error) error {
	if op := (*OpError)(nil); errors.As(err, &op) {
		op.Shard = name
		return err
	}
	return fmt.Errorf("%w (shard %s)", err, name)
}

// Shards is how many places the queue is spread over: 1, but of OpenShards.
func (q *Queue[T]) Shards() int { return len(q.shards) }

// Shard is one of them as a queue by itself: for SendTx, which needs to know in which place
// the transaction is, and for looking at one alone. It refuses messages that belong to
// another: see ShardOf. It panics where i is not from 0 to Shards() - 1.
func (q *Queue[T]) Shard(i int) *Queue[T] { return whole[T](q.shards[i]) }
