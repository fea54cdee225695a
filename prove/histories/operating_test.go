package histories

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// advance moves the database's clock forward.
type advance struct{}

func (*advance) String() string { return fmt.Sprintf("the clock jumps by %v", jump) }

func (*advance) run(h *history) {
	h.clock.advance(h, jump)
	h.model.jump(jump)
}

type pause struct{}

func (*pause) String() string { return "Pause" }

func (*pause) run(h *history) {
	require.NoError(h, testdb.Pause(h.soon(), h.queue), h.ran)
	h.model.paused = true
}

type resume struct{}

func (*resume) String() string { return "Resume" }

func (*resume) run(h *history) {
	require.NoError(h, testdb.Admin(h.queue).Resume(h.soon(), chanqadmin.Change{}), h.ran)
	h.model.paused = false
}

// cancel deletes live messages, and one that never existed.
type cancel struct{ Messages []int }

func (s *cancel) String() string { return fmt.Sprintf("Cancel messages %v", s.Messages) }

func (s *cancel) run(h *history) {
	ids := append(pick(h.model.live, s.Messages), chanq.NewID())
	found, err := h.queue.Cancel(h.soon(), ids...)
	require.NoError(h, err, h.ran)
	require.Equal(h, ids[:len(ids)-1], sorted(found), h.ran)
	for _, id := range found {
		h.note("cancelled %s", h.model.live[id].body)
		delete(h.model.live, id)
		if h.model.dead[id] == nil && !slices.ContainsFunc(h.model.done, func(m *message) bool { return m.id == id }) {
			_, err := testdb.Admin(h.queue).Get(h.soon(), id)
			require.ErrorIs(h, err, chanq.ErrNotFound, h.ran)
		}
	}
}

// redrive moves dead messages back, all if Limit is 0.
type redrive struct{ Limit int }

func (s *redrive) String() string { return fmt.Sprintf("Redrive up to %d", s.Limit) }

func (s *redrive) run(h *history) {
	limit, room := s.Limit, h.room()
	if room == 0 {
		return
	}
	if limit > room || limit == 0 && len(h.model.dead) > room {
		limit = room
	}
	n, err := testdb.Redrive(h.soon(), h.queue, limit)
	require.NoError(h, err, h.ran)
	if limit == 0 {
		limit = len(h.model.dead)
	}
	require.Len(h, h.model.redrive(h.model.ended(chanqadmin.StateDead), limit), n, h.ran)
}

// redriveIDs moves chosen dead messages back.
type redriveIDs struct{ Messages []int }

func (s *redriveIDs) String() string { return fmt.Sprintf("RedriveIDs messages %v", s.Messages) }

func (s *redriveIDs) run(h *history) {
	ids := pick(h.model.dead, s.Messages)
	ids = append(ids[:min(len(ids), h.room())], chanq.NewID())
	found, err := testdb.RedriveIDs(h.soon(), h.queue, ids...)
	require.NoError(h, err, h.ran)
	var candidates []*message
	for _, id := range ids[:len(ids)-1] {
		h.note("RedriveIDs %s", h.model.dead[id].body)
		candidates = append(candidates, h.model.dead[id])
	}
	require.Equal(h, sorted(h.model.redrive(candidates, len(candidates))), sorted(found), h.ran)
}

// purge deletes every message of a state.
type purge struct{ State chanqadmin.State }

func (s *purge) String() string { return fmt.Sprintf("Purge %s", s.State) }

func (s *purge) run(h *history) {
	n, err := testdb.Purge(h.soon(), h.queue, s.State)
	require.NoError(h, err, h.ran)
	require.Equal(h, h.model.purge(s.State), n, h.ran)
}

// room returns how many more live messages are allowed: one claim has to find all of them.
func (h *history) room() int { return max(0, maxLive-len(h.model.live)) }

// pick returns ids of a table, selected by numbers modulo its size, each once, sorted.
func pick(table map[chanq.ID]*message, numbers []int) []chanq.ID {
	all := sorted(slices.Collect(maps.Keys(table)))
	var ids []chanq.ID
	for _, n := range numbers {
		if len(all) > 0 {
			ids = append(ids, all[n%len(all)])
		}
	}
	return slices.Compact(sorted(ids))
}

func sorted(ids []chanq.ID) []chanq.ID {
	ids = append([]chanq.ID{}, ids...) // empty and nil lists compare as equal
	slices.SortFunc(ids, func(a, b chanq.ID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}
