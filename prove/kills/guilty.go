package kills

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// A guilty message fails, or makes a statement or its process fail, which must not affect other messages. Its guilt is its
// Message.Type, and the end of its name, by which the checker identifies it.
const (
	refused     = "refused"     // a trigger refuses its INSERT
	undeletable = "undeletable" // a trigger refuses the DELETE of its row, at first
	unreadable  = "unreadable"  // its body cannot be decoded
	deadly      = "deadly"      // the process that handles it dies
)

// guilts has the frequencies of guilts; deadly is the rarest: each such message ends a few processes.
var guilts = slices.Concat(slices.Repeat([]string{refused, undeletable, unreadable}, 5), []string{deadly})

// atFirst is how long a DELETE is refused, in milliseconds: longer than a lease.
const atFirst = 8000

// guiltOf returns the guilt that a name ends with, or "" for an innocent message.
func guiltOf(name string) string {
	_, guilt, _ := strings.Cut(name, " ")
	return guilt
}

// install creates the triggers. They are dropped with the table.
func (e engine) install(db *sql.DB) error {
	for _, text := range e.triggers {
		if _, err := db.Exec(text); err != nil {
			return fmt.Errorf("create a trigger: %w", err)
		}
	}
	return nil
}

// hurry divides the delays of messages that lost several leases in a row: a deadly message ends in minutes, not in an hour.
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

// body is encoded by a Codec, unlike []byte, so that it can be unreadable.
type body []byte

// codec does not decode a body without a time.
type codec struct{}

func (codec) Encode(b any) ([]byte, error) { return b.(body), nil }

func (codec) Decode(data []byte, b any) error {
	if binary.BigEndian.Uint64(data) == 0 {
		return errors.New("unreadable")
	}
	*b.(*body) = data
	return nil
}

// checkGuilty checks the outcome of a guilty message, and of an innocent one whose send failed.
func (j *checker) checkGuilty(m *Message) {
	guilt := guiltOf(m.Name)
	switch {
	case guilt == refused && len(m.Stored)+len(m.Deliveries) > 0:
		j.fault(m, "a trigger refused it, but it was stored")
	case guilt != refused && len(m.Dropped) > 0:
		j.fault(m, "its send failed: %s", m.Refusal)
	case guilt == unreadable && len(m.Deliveries) > 0:
		j.fault(m, "it was delivered, though its body cannot be decoded")
	}
}

// checkDead checks the dead-letter table: it has only messages that are guilty of their cause, and messages that a process
// dead-lettered.
func (h *History) checkDead(dead []chanqadmin.Entry) (errs []error) {
	dies := func(guilt string) bool { return guilt == unreadable || guilt == deadly }
	must, may := map[chanq.ID]string{}, map[chanq.ID]bool{}
	for _, m := range h.Messages {
		for _, s := range m.Stored {
			if dies(guiltOf(m.Name)) {
				must[s.ID] = m.Name
			}
		}
		for _, d := range m.Deliveries {
			may[d.ID] = may[d.ID] || d.How == DeadLetter
		}
	}
	for _, e := range dead {
		delete(must, e.ID)
		if !dies(e.Type) && !may[e.ID] {
			errs = append(errs, fmt.Errorf("an innocent message is dead: %s, attempt %d: %s", e.ID, e.Attempts, e.LastError))
		}
	}
	for id, name := range must {
		errs = append(errs, fmt.Errorf("LOST: %s (%s) is not in the dead table", name, id))
	}
	return errs
}

// lostInARow returns how many deadly messages were delivered, and how many innocent ones lost at most 0, 1, 2, … leases in a row. An
// unconfirmed nack counts as a lost lease.
func (h *History) lostInARow() (fatal int, innocent []int) {
	for _, m := range h.Messages {
		switch most, nacks := 0, 0; {
		case len(m.Deliveries) == 0:
		case guiltOf(m.Name) == deadly:
			fatal++
		case guiltOf(m.Name) == "":
			for _, d := range m.Deliveries {
				most = max(most, d.Attempt-1-nacks)
				if d.How == Nack && d.Outcome == Confirmed {
					nacks++
				}
			}
			innocent = append(innocent, make([]int, max(0, most+1-len(innocent)))...)
			innocent[most]++
		}
	}
	return fatal, innocent
}

// deadLettered counts, checks and deletes the dead messages: all whose dead-lettering was confirmed must be there.
func (w *watch) deadLettered(h *History, v Verdict) (int, error) {
	ctx := context.Background()
	var dead []chanqadmin.Entry
	for l := (chanqadmin.List{Limit: chanqadmin.MostListed}); ; {
		page, err := testdb.Admin(w.queue).List(ctx, chanqadmin.Select{State: chanqadmin.StateDead}, l)
		if err != nil {
			return 0, err
		}
		dead = append(dead, page.Entries...)
		if l.After = page.Next; l.After == "" {
			break
		}
	}
	errs := h.checkDead(dead)
	n, err := testdb.Purge(ctx, w.queue, chanqadmin.StateDead)
	if err == nil && n < v.DeadLettered {
		err = fmt.Errorf("LOST: %d messages were dead-lettered, %d are in the dead table", v.DeadLettered, n)
	}
	return n, errors.Join(append(errs[:min(len(errs), 20)], err)...)
}

// still returns the longest times until a moment without a send, and without a confirmed settle.
func (h *History) still(until int64) (sends, settles time.Duration) {
	var stored, settled []int64
	for _, m := range h.Messages {
		for _, s := range m.Stored {
			stored = append(stored, s.At)
		}
		for _, d := range slices.Concat(m.Deliveries, m.late) {
			if d.Outcome == Confirmed {
				settled = append(settled, d.Heard)
			}
		}
	}
	return longest(stored, until), longest(settled, until)
}

// longest returns the longest interval between two of times, up to the moment until.
func longest(times []int64, until int64) (most time.Duration) {
	slices.Sort(times)
	for i, at := range append(times, until) {
		if i > 0 && times[i-1] < until {
			most = max(most, time.Duration(min(at, until)-times[i-1]))
		}
	}
	return most
}
