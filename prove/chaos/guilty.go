package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/chaos/record"
	"github.com/chanq/chanq/prove/testdb"
)

// guilts has the frequencies of guilts; deadly is the rarest: each such message ends a few processes.
var guilts = append(slices.Repeat([]string{record.Refused, record.Undeletable, record.Unreadable}, 5), record.Deadly)

// atFirst is how long a DELETE is refused, in milliseconds: longer than a lease.
const atFirst = 8000

// install creates the triggers. They are dropped with the table.
func (e engine) install(db *sql.DB) error {
	for _, text := range e.triggers {
		if _, err := db.Exec(text); err != nil {
			return fmt.Errorf("create a trigger: %w", err)
		}
	}
	return nil
}

// hurry divides the delays of messages that lost several leases in a row: a deadly message ends in minutes, not in an
// hour.
const hurry = 20

// sqliteTriggers and postgresTriggers make messages guilty, and shorten delays.
var (
	sqliteTriggers = []string{
		fmt.Sprintf(`CREATE TRIGGER hurrying AFTER UPDATE OF lapses ON chanq_soak WHEN NEW.lapses > OLD.lapses AND NEW.due_at > OLD.due_at
			BEGIN UPDATE chanq_soak SET due_at = CAST(NEW.due_at - (NEW.due_at - unixepoch('subsec') * 1000) * %d / %d AS INTEGER) WHERE id = NEW.id; END`, hurry-1, hurry),
		`CREATE TRIGGER refusing BEFORE INSERT ON chanq_soak WHEN NEW.type = 'refused' BEGIN SELECT RAISE(ABORT, 'refused'); END`,
		fmt.Sprintf(`CREATE TRIGGER undeletable BEFORE DELETE ON chanq_soak WHEN OLD.type = 'undeletable'
			AND unixepoch('subsec') * 1000 < OLD.enqueued_at + %d BEGIN SELECT RAISE(ABORT, 'undeletable'); END`, atFirst),
	}
	postgresTriggers = []string{
		fmt.Sprintf(`CREATE FUNCTION hurrying() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			NEW.due_at = NEW.due_at - (NEW.due_at - extract(epoch FROM clock_timestamp()) * 1000)::bigint * %d / %d; RETURN NEW; END $$`, hurry-1, hurry),
		`CREATE TRIGGER hurrying BEFORE UPDATE OF lapses ON chanq_soak FOR EACH ROW WHEN (NEW.lapses > OLD.lapses AND NEW.due_at > OLD.due_at)
			EXECUTE FUNCTION hurrying()`,
		`CREATE FUNCTION refusing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$`,
		`CREATE TRIGGER refusing BEFORE INSERT ON chanq_soak FOR EACH ROW WHEN (NEW.type = 'refused') EXECUTE FUNCTION refusing()`,
		fmt.Sprintf(`CREATE TRIGGER undeletable BEFORE DELETE ON chanq_soak FOR EACH ROW WHEN (OLD.type = 'undeletable'
			AND extract(epoch FROM clock_timestamp()) * 1000 < OLD.enqueued_at + %d) EXECUTE FUNCTION refusing()`, atFirst),
	}
)

// body has a time, the message's name, a zero and random bytes. It is encoded by a Codec, unlike []byte, so that it
// can be unreadable: without a time.
type body []byte

const stampBytes = 8

func newBody(name string, more int) body {
	b := make(body, stampBytes+len(name)+1+more)
	copy(b[stampBytes:], name)
	return b
}

func (b body) stamp(at int64) { binary.BigEndian.PutUint64(b, uint64(at)) }
func (b body) at() int64      { return int64(binary.BigEndian.Uint64(b)) }

func nameOf(b body) string {
	name, _, _ := bytes.Cut(b[stampBytes:], []byte{0})
	return string(name)
}

type codec struct{}

func (codec) Encode(b any) ([]byte, error) { return b.(body), nil }

func (codec) Decode(data []byte, b any) error {
	if body(data).at() == 0 {
		return errors.New("unreadable")
	}
	*b.(*body) = data
	return nil
}

// deadLettered counts, checks and deletes the dead messages: all whose dead-lettering was confirmed must be there.
func (r *run) deadLettered(ctx context.Context, v record.Verdict) (int, error) {
	var dead []chanqadmin.Entry
	for _, shard := range r.queue.shards {
		for l := (chanqadmin.List{Limit: chanqadmin.MostListed}); ; {
			page, err := testdb.Admin(shard).List(ctx, chanqadmin.Select{State: chanqadmin.StateDead}, l)
			if err != nil {
				return 0, err
			}
			dead = append(dead, page.Entries...)
			if l.After = page.Next; l.After == "" {
				break
			}
		}
	}
	errs := r.history.CheckDead(dead)
	if len(dead) < v.DeadLettered {
		err := fmt.Errorf("LOST: %d messages were dead-lettered, %d are in the dead table", v.DeadLettered, len(dead))
		errs = append(errs, err)
	}
	return len(dead), errors.Join(errs[:min(len(errs), 20)]...)
}
