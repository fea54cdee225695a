package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The order of commits: commits release their locks one by one, and sends run between the statements of a read.

// sent is a message, and the messages of its key that were sent before it: their Send had returned, or the same transaction had sent them.
type sent struct {
	key    string
	before []byte
	gone   bool // rolled back
}

// sending is a transaction of a sender.
type sending struct {
	tx   *sql.Tx
	mine []byte
}

// seam is a consumer that owns all slots of a queue, and senders.
type seam struct {
	*ordered
	*rand.Rand
	messages map[byte]*sent
	stored   map[string][]byte // the committed messages, by key
	open     []*sending
	seen     map[byte]bool
	marks    [seamSlots]int64 // the last watermark of each slot
	reading  bool
	busy     bool // a hook is running
	gaps     int  // how often something ran between a number and its INSERT
	releases int  // reads between two locks that a commit released
	read     int  // reads that found a watermark
}

const seamSlots = 2

// row returns the next message of a key.
func (s *seam) row(key string, before []byte) (byte, sqlbatch.Row) {
	n := byte(len(s.messages) + 1)
	s.messages[n] = &sent{key: key, before: before}
	return n, sqlbatch.Row{ID: [16]byte{n}, OrderKey: key, Slot: int(key[0]-'a') % seamSlots, Body: []byte{n}}
}

// send sends up to three messages with one statement, possibly in a transaction that stays open.
func (s *seam) send() {
	if len(s.messages) > 200 {
		return
	}
	var t *sending
	switch i := s.IntN(len(s.open)+3) - 2; {
	case i == len(s.open) && i < 3:
		tx, err := s.DB().Begin()
		assert.NoError(s.t, err)
		t = &sending{tx: tx}
		s.open = append(s.open, t)
	case i >= 0 && i < len(s.open):
		t = s.open[i]
	}
	s.sendBy(t)
}

// sendBy sends in the given transaction, or in a separate one.
func (s *seam) sendBy(t *sending) {
	var ns []byte
	var rows []sqlbatch.Row
	for range 1 + s.IntN(3) {
		key := string("abc"[s.IntN(3)])
		before := slices.Clone(s.stored[key])
		mine := ns
		if t != nil {
			mine = slices.Concat(t.mine, ns)
		}
		for _, n := range mine {
			if s.messages[n].key == key {
				before = append(before, n)
			}
		}
		n, row := s.row(key, before)
		ns, rows = append(ns, n), append(rows, row)
	}
	if t == nil {
		s.do(s.DB(), 0, s.Enqueue(rows))
		s.committed(ns)
		return
	}
	s.do(t.tx, 0, s.InTx().Enqueue(rows))
	t.mine = append(t.mine, ns...)
}

func (s *seam) committed(ns []byte) {
	for _, n := range ns {
		s.stored[s.messages[n].key] = append(s.stored[s.messages[n].key], n)
	}
}

// end commits a transaction, or rolls it back.
func (s *seam) end() {
	if len(s.open) == 0 {
		return
	}
	i := s.IntN(len(s.open))
	t := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)
	if s.IntN(4) == 0 {
		for _, n := range t.mine {
			s.messages[n].gone = true
		}
		assert.NoError(s.t, t.tx.Rollback())
		return
	}
	assert.NoError(s.t, t.tx.Commit())
	s.committed(t.mine)
}

// look reads, and checks that no message appears up to a watermark of an earlier read, nor before one that was sent before it.
func (s *seam) look() {
	slots := [][]int{{0, 1}, {0}, {1}}[s.IntN(3)]
	s.reading = true
	rows, err := suite.Rows(context.Background(), s.DB(), s.Read(s.readOf(slots...)))
	s.reading = false
	if err != nil {
		assert.Equal(s.t, sqlbatch.RolledBack, sqlserver.Dialect.Classify(err), "%v", err)
		return
	}
	drawn := rows[len(rows)-1][2].(int64)
	if drawn < 0 {
		return
	}
	s.read++
	here := map[byte]bool{}
	for _, row := range rows[:len(rows)-1] {
		n := row[0].(string)[0]
		here[n] = true
		if locked := row[len(row)-1].(int64) != 0; !locked { // otherwise its transaction might have ended meanwhile
			assert.False(s.t, s.messages[n].gone, "%d was rolled back", n)
		}
		assert.True(s.t, s.seen[n] || row[15].(int64) > s.marks[row[14].(int64)], "%d of key %s is below a watermark, and was not seen", n, s.messages[n].key)
	}
	for n := range here {
		for _, b := range s.messages[n].before {
			assert.True(s.t, here[b] || s.messages[b].gone, "%d of key %s passes %d", n, s.messages[n].key, b)
		}
	}
	maps.Copy(s.seen, here)
	for _, slot := range slots {
		s.marks[slot] = max(s.marks[slot], drawn)
	}
}

func (s *seam) act() {
	switch s.IntN(5) {
	case 0, 1:
		s.send()
	case 2, 3:
		s.end()
	}
}

// No read returns a message while it misses an earlier one of the same key, and none misses a message up to its watermark.
func TestNoReadMissesAMessageUpToItsWatermark(t *testing.T) {
	for _, versions := range []bool{false, true} {
		t.Run(fmt.Sprintf("READ_COMMITTED_SNAPSHOT=%t", versions), func(t *testing.T) {
			t.Parallel()
			testdb.Emulator.Require(t)
			gaps, releases, read := 0, 0, 0
			for seed := range testdb.Of[uint64](6, 20) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := playSeam(t, versions, seed)
						gaps, releases, read = gaps+s.gaps, releases+s.releases, read+s.read
					})
				})
			}
			t.Log(gaps, releases, read)
			require.Positive(t, gaps, "nothing ran between a number and its INSERT")
			require.Positive(t, releases, "no read ran between two locks of a commit")
			require.Greater(t, read, 50)
		})
	}
}

// playSeam runs senders and reads in an order that the seed chooses. Actions between the statements of a read run in the goroutine of its
// session, as do the reads between the locks that a commit releases.
func playSeam(t *testing.T, versions bool, seed uint64) *seam {
	s := &seam{
		Rand: rand.New(rand.NewPCG(seed, 0)), messages: map[byte]*sent{}, stored: map[string][]byte{}, seen: map[byte]bool{}, busy: true,
	}
	s.ordered = newOrdered(t, seamSlots, mssqltest.Options{InMemory: true, ReadCommittedSnapshot: versions, OnRelease: func() {
		if !s.reading && !s.busy && s.IntN(2) == 0 {
			s.busy = true
			s.releases++
			s.look()
			s.busy = false
		}
	}})
	s.SetHooks(mssqltest.Hooks{Before: func(_ context.Context, st mssqltest.Statement) error {
		if s.busy {
			return nil
		}
		s.busy = true
		switch between := st.Kind == "InsertStatement" || st.Kind == "UpdateStatement" || st.Kind == "SelectStatement"; { // while a read does not hold the application lock
		case s.reading && between && strings.Contains(st.Text, "@walks"):
			s.act()
		case !s.reading && st.Kind == "InsertStatement" && s.IntN(4) == 0: // its number is drawn, its batch has no other INSERT
			s.gaps++
			s.look()
			s.sendBy(nil)
			s.look()
		}
		s.busy = false
		return nil
	}})
	s.busy = false
	for range 40 {
		if s.IntN(10) < 4 {
			s.look()
		} else {
			s.act()
		}
	}
	s.busy = true
	s.SetHooks(mssqltest.Hooks{})
	for _, open := range s.open {
		require.NoError(t, open.tx.Rollback())
	}
	return s
}
