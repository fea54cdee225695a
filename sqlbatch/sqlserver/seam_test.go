package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/mssqltest"
	"github.com/chanq/chanq/prove/testdb/mssqltest/engine"
	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
)

// The seam of ordered queues: commits that give their locks free one by one, and sends between the
// statements of a claim.

// sent is a message, and those of its key that no claim may pass: whose Send had returned, or that
// the same transaction had sent before.
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

// seam is one member that claims all slots of a queue, and senders that come between.
type seam struct {
	testing.TB
	*rand.Rand
	sqlbatch.Queue
	db       *sql.DB
	member   [16]byte
	parts    []sqlbatch.SlotPart
	horizon  int64
	salt     int64
	messages map[byte]*sent
	stored   map[string][]byte // of a key, what was committed
	open     []*sending
	leased   map[byte]bool
	entries  map[byte]spot // told of and not leased: their keys are closed
	claiming bool
	busy     bool // a hook is at work
	gaps     int  // times that something came between a number and its INSERT
}

type spot struct{ slot, seq int64 }

const seamSlots = 2

func (s *seam) rows(st sqlbatch.Statement) [][]any {
	rows, err := suite.Rows(context.Background(), s.db, st)
	assert.NoError(s, err)
	return rows
}

// row is the next message of a key.
func (s *seam) row(key string, before []byte) (byte, sqlbatch.Row) {
	n := byte(len(s.messages) + 1)
	s.messages[n] = &sent{key: key, before: before}
	return n, sqlbatch.Row{ID: [16]byte{n}, OrderKey: key, Slot: int(key[0]-'a') % seamSlots, Body: []byte{n}}
}

// send sends up to three messages by one statement, in a transaction that stays open, or not.
func (s *seam) send() {
	if len(s.messages) > 200 {
		return
	}
	var t *sending
	switch i := s.IntN(len(s.open)+2) - 1; {
	case i == len(s.open) && i < 4:
		tx, err := s.db.Begin()
		assert.NoError(s, err)
		t = &sending{tx: tx}
		s.open = append(s.open, t)
	case i >= 0 && i < len(s.open):
		t = s.open[i]
	}
	s.sendBy(t)
}

// sendBy sends in a transaction, or in one of its own.
func (s *seam) sendBy(t *sending) {
	var ns []byte
	var rows []sqlbatch.Row
	for range 1 + s.IntN(3) {
		key := string("abc"[s.IntN(3)])
		before := slices.Clone(s.stored[key])
		for _, n := range ns {
			if s.messages[n].key == key {
				before = append(before, n)
			}
		}
		if t != nil {
			for _, n := range t.mine {
				if s.messages[n].key == key {
					before = append(before, n)
				}
			}
		}
		n, row := s.row(key, before)
		ns, rows = append(ns, n), append(rows, row)
	}
	if t == nil {
		s.rows(s.Enqueue(rows))
		s.committed(ns)
		return
	}
	_, err := suite.Rows(context.Background(), t.tx, s.InTx().Enqueue(rows))
	assert.NoError(s, err)
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
		assert.NoError(s, t.tx.Rollback())
		return
	}
	assert.NoError(s, t.tx.Commit())
	s.committed(t.mine)
}

// sample takes the horizon as a consumer does.
func (s *seam) sample() {
	row := s.rows(s.Horizon())[0]
	if row[1] == "" {
		s.horizon = max(s.horizon, row[0].(int64))
	}
}

// claim claims, and checks that no message was passed. Marks and entries follow as those of a
// consumer.
func (s *seam) claim() {
	horizon := s.horizon
	parts := s.plan()
	s.salt++
	s.claiming = true
	rows := s.rows(s.ClaimSlots(sqlbatch.SlotClaim{
		Rows: 1 + s.IntN(12), Lease: time.Hour, Member: s.member, Salt: s.salt, Lapses: math.MaxInt32, Parts: parts,
	}))
	s.claiming = false
	told, leased := map[byte]bool{}, map[byte]bool{}
	last := map[int64]int64{}
	ends := map[int64]int64{}
	for _, row := range rows {
		at := spot{row[12].(int64), row[13].(int64)}
		if row[0] == nil {
			ends[at.slot] = at.seq
			continue
		}
		n := row[0].(string)[0]
		told[n], last[at.slot] = true, max(last[at.slot], at.seq)
		s.entries[n] = at
		if row[15] == nil {
			assert.False(s, s.messages[n].gone, "%d was rolled back", n)
			leased[n] = true
			delete(s.entries, n)
		}
	}
	for n, at := range s.entries {
		from := parts[slices.IndexFunc(parts, func(p sqlbatch.SlotPart) bool { return int64(p.Slot) == at.slot })].From
		if !told[n] && at.seq > from && at.seq <= ends[at.slot] {
			assert.True(s, s.messages[n].gone, "%d of key %s is there, and was not told of", n, s.messages[n].key)
			delete(s.entries, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(leased)) {
		for _, b := range s.messages[n].before {
			_, closed := s.entries[b]
			assert.True(s, s.leased[b] || leased[b] || closed || s.messages[b].gone, "%d of key %s passes %d", n, s.messages[n].key, b)
		}
	}
	maps.Copy(s.leased, leased)
	for i, p := range parts {
		end, walked := ends[int64(p.Slot)]
		assert.True(s, walked)
		if end == math.MaxInt64 {
			end = max(p.From, last[int64(p.Slot)])
		}
		s.parts[i].From = max(s.parts[i].From, min(end, horizon))
	}
}

// plan is what the next claim asks for: behind the marks, from an entry on, or all.
func (s *seam) plan() []sqlbatch.SlotPart {
	parts := slices.Clone(s.parts)
	from := s.IntN(5)
	for i := range parts {
		parts[i].Limit = 1 + s.IntN(8)
		for _, at := range s.entries {
			if at.slot == int64(parts[i].Slot) && from <= 1 {
				parts[i].From = min(parts[i].From, at.seq-1)
			}
		}
		if from == 0 {
			parts[i].From = 0
		}
	}
	return parts
}

func (s *seam) act() {
	switch s.IntN(5) {
	case 0, 1:
		s.send()
	case 2:
		s.end()
	}
}

// between comes between the number of a send and its INSERT: another send, and a claim behind a
// horizon that was sampled then.
func (s *seam) between() {
	s.gaps++
	s.sendBy(nil)
	s.claim()
	s.sample()
	s.claim()
}

// No claim leases a message while one that was sent before it, of the same key, is neither
// leased nor told of.
func TestNoClaimFromSlotsPassesAMessageOfTheSameKey(t *testing.T) {
	for _, versions := range []bool{false, true} {
		t.Run(fmt.Sprintf("READ_COMMITTED_SNAPSHOT=%t", versions), func(t *testing.T) {
			t.Parallel()
			testdb.Emulator.Require(t)
			gaps := 0
			for seed := range testdb.Of[uint64](6, 20) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { gaps += playSeam(t, versions, seed) })
			}
			require.Positive(t, gaps, "nothing came between a number and its INSERT")
		})
	}
}

// playSeam plays senders and claims in an order that the seed tells. What comes between the statements of
// a claim runs in the goroutine of its session, as do the claims between the locks that a commit gives
// back. It returns how often something came between a number and its INSERT.
func playSeam(t *testing.T, versions bool, seed uint64) (gaps int) {
	s := &seam{
		TB: t, Rand: rand.New(rand.NewPCG(seed, 0)), member: [16]byte{7},
		messages: map[byte]*sent{}, stored: map[string][]byte{}, leased: map[byte]bool{}, entries: map[byte]spot{}, busy: true,
	}
	server := mssqltest.Start(t, mssqltest.Options{Clock: engine.RealClock{}, ReadCommittedSnapshot: versions, OnRelease: func() {
		if !s.claiming && !s.busy && s.IntN(2) == 0 {
			s.busy = true
			s.claim()
			s.busy = false
		}
	}})
	names := sqlbatch.Names{Queue: "orders", Slots: seamSlots}
	testdb.MigrateTables(t, sqlserver.Dialect, server.DB(), names)
	s.Queue, s.db = sqlserver.Dialect.Queue(names), server.DB()
	s.rows(s.Join(sqlbatch.Member{ID: s.member, For: time.Hour}))
	for _, row := range s.rows(s.TakeSlots(s.member, 1, []int{0, 1})) {
		s.parts = append(s.parts, sqlbatch.SlotPart{Slot: int(row[0].(int64)), Fence: row[1].(int64)})
	}
	require.Len(t, s.parts, seamSlots)
	server.Engine().SetHooks(engine.Hooks{Before: func(_ context.Context, st engine.Statement) error {
		if s.busy {
			return nil
		}
		s.busy = true
		switch {
		case s.claiming && strings.Contains(st.Text, "@walked"):
			s.act()
		case !s.claiming && st.Kind == "InsertStatement" && s.IntN(4) == 0: // its number is drawn, its batch has no other INSERT
			s.between()
		}
		s.busy = false
		return nil
	}})
	s.busy = false
	for range 40 {
		switch s.IntN(10) {
		case 0:
			s.busy = true // the end of the gate is no commit of a sender
			s.sample()
			s.busy = false
		case 1, 2, 3:
			s.claim()
		default:
			s.act()
		}
	}
	s.busy = true
	server.Engine().SetHooks(engine.Hooks{})
	for _, open := range s.open {
		require.NoError(t, open.tx.Rollback())
	}
	return s.gaps
}
