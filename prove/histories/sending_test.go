package histories

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

type manner string

const (
	alone   manner = "Send"
	batch   manner = "SendBatch"
	channel manner = "C"
)

// send stores messages, in one of the ways that wait for the result.
type send struct {
	Producer int
	How      manner
	Messages []draft
}

func (s *send) String() string {
	return fmt.Sprintf("producer %d: %s %v", s.Producer, s.How, s.Messages)
}

func (s *send) run(h *history) {
	ms := h.compose(s.Messages)
	p := h.producers[s.Producer]
	switch s.How {
	case alone:
		for _, m := range ms {
			r, err := p.Send(h.soon(), m)
			require.NoError(h, err, h.ran)
			h.sent([]chanq.Message[string]{m}, []chanq.Receipt{r})
		}
	case batch:
		receipts, err := p.SendBatch(h.soon(), ms...)
		require.NoError(h, err, h.ran)
		h.sent(ms, receipts)
	case channel:
		for i := range ms {
			if ms[i].DedupKey != "" && ms[i].ID.IsZero() {
				ms[i].ID = chanq.NewID() // a body that is replaced, by this message or a later one, is not found below
			}
			p.C() <- ms[i]
		}
		require.NoError(h, p.Flush(h.soon()), h.ran)
		h.handedOver(ms)
	}
}

// sent adds stored messages to the model, and compares receipts.
func (h *history) sent(ms []chanq.Message[string], receipts []chanq.Receipt) {
	require.Len(h, receipts, len(ms), h.ran)
	var last chanq.ID
	for i, m := range ms {
		if m.ID.IsZero() && !receipts[i].Duplicate && !receipts[i].Replaced {
			m.ID = receipts[i].ID
			require.Positive(h, bytes.Compare(m.ID[:], last[:]), "%s: IDs rise in the order of sending", h.ran)
			last = m.ID
		}
		require.Equal(h, h.model.send(m), receipts[i], "%s: receipt of %s", h.ran, m.Body)
	}
}

// handedOver adds messages to the model that were sent on C and are all stored. Messages without an
// ID are looked up by their bodies.
func (h *history) handedOver(ms []chanq.Message[string]) {
	byBody := map[string]chanq.ID{}
	for _, s := range []chanqadmin.State{chanqadmin.StateReady, chanqadmin.StateScheduled} {
		for _, e := range h.peek(s) {
			byBody[string(e.Body)] = e.ID
		}
	}
	var last chanq.ID
	for _, m := range ms {
		if m.ID.IsZero() && h.model.holder(m.DedupKey) == nil {
			m.ID = byBody[m.Body]
			require.Positive(h, bytes.Compare(m.ID[:], last[:]), "%s: message %s is stored, in the order of sending", h.ran, m.Body)
			last = m.ID
		}
		h.model.send(m)
	}
}

// giveUp sends messages on C and closes the producer immediately, without waiting: each message is
// stored or returned.
type giveUp struct {
	Producer int
	Messages []draft
}

func (g *giveUp) String() string {
	return fmt.Sprintf("producer %d: C %v, then Close without waiting", g.Producer, g.Messages)
}

func (g *giveUp) run(h *history) {
	p := h.producers[g.Producer]
	ms := h.compose(g.Messages)
	for i := range ms {
		if ms[i].ID.IsZero() {
			ms[i].ID = chanq.NewID() // to distinguish the messages below
		}
		ms[i].DedupKey, ms[i].OnDuplicate, ms[i].DebounceMax = "", chanq.KeepFirst, 0
		p.C() <- ms[i]
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	err := p.Close(gone)
	require.NoError(h, p.Close(h.soon()), h.ran) // waits for operations that the driver is still executing
	h.sessions.settle(h, h.db)
	h.producers[g.Producer] = h.produce()

	back := map[string]chanq.Unsent[string]{}
	var unsent *chanq.UnsentError[string]
	if errors.As(err, &unsent) {
		for _, u := range unsent.Unsent {
			back[u.Message.Body] = u
		}
		require.Len(h, back, len(unsent.Unsent), "%s: each message is returned once", h.ran)
	} else if err != nil { // goroutines had not ended, but all messages were stored
		require.ErrorIs(h, err, context.Canceled, h.ran)
	}
	for _, m := range ms {
		u, returned := back[m.Body]
		if !returned {
			h.model.send(m)
			continue
		}
		h.note("%s came back: %v", m.Body, u.Err)
		require.Equal(h, m, u.Message, h.ran)
		var op *chanq.OpError
		require.ErrorAs(h, u.Err, &op, h.ran)
		if op.Unknown {
			if e, err := testdb.Admin(h.queue).Get(h.soon(), m.ID); err == nil && string(e.Body) == m.Body {
				h.model.send(m)
			} else {
				require.True(h, err == nil || errors.Is(err, chanq.ErrNotFound), "%s: %v", h.ran, err)
			}
		}
	}
}
