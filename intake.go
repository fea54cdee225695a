package chanq

import (
	"errors"

	"github.com/chanq/chanq/internal/send"
)

// What comes through Producer.C.

// hand is what the intake has received and not handed over.
type hand[T any] struct {
	ready []send.Item // encoded
	now   *Message[T] // at the codec
	given bool        // Close gave it up
}

// intake receives from C until Close begins.
func (p *Producer[T]) intake() {
	defer func() {
		p.sender.Close()
		close(p.received)
	}()
	in := p.in
	for p.open.Err() == nil {
		select {
		case m, ok := <-in:
			if ok {
				p.handOver(m)
			} else {
				in = nil // closed by its sender
			}
		case <-p.flushIn:
		case <-p.open.Done():
		}
	}
}

// handOver hands a message of C over, and with it, up to a limit, those whose
// senders wait behind it.
func (p *Producer[T]) handOver(m Message[T]) {
	const most = 64
	items := make([]send.Item, 0, p.usual)
	origins := make([]Message[T], 0, p.usual) // one allocation for all
	size := 0
	for ok := true; ok; {
		origins = append(origins, m)
		item, err := p.encode(&origins[len(origins)-1], items)
		switch {
		case err == errGivenUp:
			p.usual = 0
			return
		case err != nil:
			// One with too large a body takes the room of the largest that is allowed, lest it keep all others out.
			unsent := item
			p.sender.KeepUnsent(&unsent, p.queue.cfg.MaxBody+rowOverhead, err)
		case size+item.Size > p.cfg.BufferBytes: // never has room for both
			p.sender.PushInTurn(items, size)
			items, size = append([]send.Item(nil), item), item.Size
		default:
			items, size = append(items, item), size+item.Size
		}
		if len(items) == most || size >= p.cfg.BufferBytes/4 {
			break
		}
		select {
		case m, ok = <-p.in:
		default:
			ok = false
		}
	}
	p.usual = len(items)
	if len(items) > 0 {
		p.sender.PushInTurn(items, size)
	}
}

// errGivenUp: Close has answered for what is in the intake's hand.
var errGivenUp = errors.New("given up")

// encode prepares a message of C. Close must not wait for the user's codec: while
// that has the message, it and what was received before it are in p.hand.
func (p *Producer[T]) encode(origin *Message[T], ready []send.Item) (item send.Item, err error) {
	m := *origin
	if !meetsCodec[T]() {
		item, err = p.prepare(&m)
		item.Origin = origin
		return item, err
	}
	given := !m.ID.IsZero()
	if !given {
		m.ID = p.queue.newID() // as it may have to be returned with one
		origin.ID = m.ID
	}
	h := &hand[T]{ready: ready, now: origin}
	p.mu.Lock()
	if p.abandoned.Err() != nil {
		p.mu.Unlock()
		item.Row.ID, item.Size, item.Origin = m.ID, rowOverhead, origin
		return item, ErrClosed
	}
	p.hand = h
	p.mu.Unlock()
	item, err = p.prepare(&m)
	item.Origin, item.Given = origin, given
	p.mu.Lock()
	p.hand = nil
	gone := h.given
	p.mu.Unlock()
	if gone {
		err = errGivenUp
	}
	return item, err
}

// giveUpHand answers for what is at the codec, and before it in the intake's hand, if
// there is such. Close has abandoned the producer, so nothing comes to a codec any more.
func (p *Producer[T]) giveUpHand() (unsent []Unsent[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hand
	if h == nil {
		return nil
	}
	h.given = true
	closed := func(id ID) send.Outcome {
		return send.Outcome{Receipt: send.Receipt{ID: id}, Err: ErrClosed}
	}
	for i := range h.ready {
		unsent = append(unsent, p.unsentOf(&h.ready[i], closed(h.ready[i].Row.ID)))
	}
	return append(unsent, Unsent[T]{Message: *h.now, Err: p.sendError(closed(h.now.ID))})
}
