package chanqtest

import (
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
)

// ErrCrash is the error of a statement after which Crash has killed the program.
var ErrCrash = errors.New("chanqtest: the program was killed")

// Crash kills the program after its nth statement on db, counted from now on: the statement is applied, and its caller gets ErrCrash. BEGIN,
// COMMIT and the statements of chanq count. After the first call of Drain or Work only statements in such calls count, so your assertions
// do not.
//
// In Drain and Work all later statements fail, and open transactions are rolled back. Then Drain starts its parts again, as a process
// manager does. The leases expire after ConsumerConfig.LeaseFor. Outside of these calls only this statement fails, and the connections are
// broken. If the test ends before the nth statement, it fails. To try each n, use Crashes.
func Crash(t testing.TB, db *sql.DB, nth int) {
	t.Helper()
	if nth < 1 {
		t.Fatalf("chanqtest: Crash: nth is %d: must be at least 1", nth)
	}
	n := 0
	d := arm(t, db, "Crash", func(string) bool { n++; return n == nth })
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if n < nth && !t.Failed() {
			t.Errorf("chanqtest: Crash: the program executed only %d statements, and was to be killed after statement %d: call it earlier, or on "+
				"the database of the program", n, nth)
		}
	})
}

// Crashes is for a loop whose body runs a test once per statement of a program, and kills the program after it:
//
//	for crash := range chanqtest.Crashes(t) {
//		synctest.Test(t, func(t *testing.T) {
//			shop := open(t, chanqtest.DB(t))
//			shop.Checkout(t.Context(), "Ada")
//			crash(t, shop.db)                // from here on
//			chanqtest.Drain(t, shop.Worker)  // dies, and is started again
//			require.Equal(t, 1, shop.parcels(t))
//		})
//	}
//
// Do the same in each iteration, with a new database. The program is killed after the first statement that no earlier iteration was killed
// after; a text that is executed twice is two statements. The loop ends after an iteration in which no statement was left. If your test
// fails, it logs the statement.
func Crashes(t testing.TB) iter.Seq[func(testing.TB, *sql.DB)] {
	return func(yield func(func(testing.TB, *sql.DB)) bool) {
		t.Helper()
		tried := map[statement]bool{}
		for range mostCrashes {
			left := false
			var used *database
			crash := func(t testing.TB, db *sql.DB) {
				t.Helper()
				seen := map[string]int{}
				used = arm(t, db, "Crashes", func(text string) bool {
					seen[text]++
					is := statement{text, seen[text]}
					if left || tried[is] {
						return false
					}
					tried[is], left = true, true
					return true
				})
			}
			if !yield(crash) || t.Failed() {
				return
			}
			if used == nil {
				t.Fatal("chanqtest: Crashes: the body of the loop has not called its function: call crash(t, db)")
			}
			used.close(t) // if it is not of a test within this one
			if len(tried) == 0 {
				t.Fatal("chanqtest: Crashes: the program has executed no statement after crash(t, db): call it earlier, or on the database of the program")
			}
			if !left {
				return
			}
		}
		t.Fatalf("chanqtest: Crashes: the program has more than %d statements: make the test smaller, or call crash later", mostCrashes)
	}
}

const mostCrashes = 2000

// statement is the nth execution of a text.
type statement struct {
	text string
	nth  int
}

// arm sets which statement kills the program.
func arm(t testing.TB, db *sql.DB, op string, crash func(text string) bool) *database {
	t.Helper()
	d := databaseOf(db)
	if d == nil {
		t.Fatalf("chanqtest: %s: db is not of chanqtest: pass the result of chanqtest.DB, Postgres or Open", op)
	}
	n, after := 0, ""
	d.mu.Lock()
	defer d.mu.Unlock()
	d.worked = false
	d.crash = func(text string) bool {
		n++
		if !crash(text) {
			return false
		}
		after = fmt.Sprintf("statement %d: %s", n, short(text))
		return true
	}
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.crash = nil; t.Failed() && after != "" {
			t.Logf("chanqtest: the program was killed after %s", after)
		}
	})
	return d
}

func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}

// alive returns the number of the process, or the error of all statements if it is dead.
func (d *database) alive() (process int, dead error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process, d.dead
}

// ran kills the process after a statement, if that is its last one.
func (d *database) ran(text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead != nil || d.crash == nil || d.worked && len(d.working) == 0 || !d.crash(text) {
		return d.dead
	}
	err := fmt.Errorf("%w after: %s", ErrCrash, short(text))
	if d.process++; len(d.working) > 0 {
		d.dead = err
	}
	for _, end := range d.working {
		end()
	}
	return err
}

// work begins a call of Drain or Work, whose program end ends.
func (d *database) work(end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.working = append(d.working, end)
}

// rest ends the call that began last, and reports whether the program has died.
func (d *database) rest() (died bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	died, d.worked = d.dead != nil, true
	if d.working = d.working[:len(d.working)-1]; len(d.working) == 0 {
		d.dead = nil
	}
	return died
}
