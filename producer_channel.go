package chanq

import (
	"errors"

	"github.com/chanq/chanq/internal/send"
)

// received is a message that came through C.
type received[T any] struct {
	send.Item
	message Message[T] // unchanged, except for its ID
}

// hand has the messages that the intake has received and not passed on.
type hand[T any] struct {
	ready []received[T] // encoded
	now   Message[T]    // being encoded
	given bool          // Close has returned these messages
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

// handOver passes a message of C on, together with those whose senders are waiting, up to a limit.
func (p *Producer[T]) handOver(m Message[T]) {
	const most = 64
	items := make([]received[T], 0, p.usual)
	size := 0
	for ok := true; ok; {
		item, err := p.encode(m, items)
		switch {
		case err == errGivenUp:
			p.usual = 0
			return
		case err != nil:
			p.keepUnsent(item, err)
		case size+item.Size > p.cfg.BufferBytes: // never has room for both
			p.pushInTurn(items, size)
			items, size = append([]received[T](nil), item), item.Size
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
		p.pushInTurn(items, size)
	}
}

func (p *Producer[T]) pushInTurn(items []received[T], size int) {
	for i := range items {
		items[i].Origin = &items[i].message
	}
	p.sender.PushInTurn(len(items), func(i int) *send.Item { return &items[i].Item }, size)
}

// keepUnsent keeps a message that cannot be stored. A body above MaxBody counts as MaxBody, so that it does not fill the buffer.
func (p *Producer[T]) keepUnsent(item received[T], err error) {
	item.Origin = &item.message
	p.sender.KeepUnsent(&item.Item, p.queue.table.Policy().MaxBody+rowOverhead, err)
}

// errGivenUp: Close has returned the messages of the hand.
var errGivenUp = errors.New("given up")

// encode encodes a message of C. Close must not wait for the user's codec: during the call the message and those received before it are
// in p.hand.
func (p *Producer[T]) encode(m Message[T], ready []received[T]) (item received[T], err error) {
	if !meetsCodec[T]() {
		item.message = m
		item.Item, err = p.prepare(&m)
		return item, err
	}
	given := !m.ID.IsZero()
	if !given {
		m.ID = p.queue.newID() // Close might return the message, which then needs its ID
	}
	item.message = m
	h := &hand[T]{ready: ready, now: m}
	p.mu.Lock()
	if p.abandoned.Err() != nil {
		p.mu.Unlock()
		item.Row.ID, item.Size = m.ID, rowOverhead
		return item, ErrClosed
	}
	p.hand = h
	p.mu.Unlock()
	item.Item, err = p.prepare(&m)
	item.Given = given
	p.mu.Lock()
	p.hand = nil
	gone := h.given
	p.mu.Unlock()
	if gone {
		err = errGivenUp
	}
	return item, err
}

// giveUpHand returns the messages of the hand, if there is one, as unsent. Close has abandoned the producer, so no further message is
// encoded.
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
		unsent = append(unsent, p.unsentOf(&h.ready[i].message, closed(h.ready[i].Row.ID)))
	}
	return append(unsent, p.unsentOf(&h.now, closed(h.now.ID)))
}
