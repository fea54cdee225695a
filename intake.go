package chanq

import "errors"

// What comes through Producer.C.

// hand is what the intake has received and not handed over.
type hand[T any] struct {
	ready []pending[T] // encoded
	now   pending[T]   // at the codec; its origin is the message
	given bool         // Close gave it up
}

// intake receives from C until Close begins.
func (p *Producer[T]) intake() {
	defer func() {
		p.core.writer.Close()
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
	items := make([]pending[T], 0, p.usual)
	size := 0
	for ok := true; ok; {
		item, err := p.encode(m, items)
		switch {
		case err == errGivenUp:
			p.usual = 0
			return
		case err != nil:
			p.core.keepUnsent(item, err)
		case size+item.Size > p.core.cfg.BufferBytes: // never has room for both
			p.core.pushInTurn(items, size)
			items, size = append([]pending[T](nil), item), item.Size
		default:
			items, size = append(items, item), size+item.Size
		}
		if len(items) == most || size >= p.core.cfg.BufferBytes/4 {
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
		p.core.pushInTurn(items, size)
	}
}

// errGivenUp: Close has answered for what is in the intake's hand.
var errGivenUp = errors.New("given up")

// encode prepares a message of C. Close must not wait for the user's codec: while
// that has the message, it and what was received before it are in p.hand.
func (p *Producer[T]) encode(m Message[T], ready []pending[T]) (item pending[T], err error) {
	if !meetsCodec[T]() {
		item, err = p.core.prepare(&m)
		item.origin = m
		return item, err
	}
	if m.ID.IsZero() {
		m.ID = p.core.queue.newID() // as it may have to be returned with one
	} else {
		item.given = true
	}
	item.origin, item.Size = m, rowOverhead
	h := &hand[T]{ready: ready, now: item}
	p.mu.Lock()
	if p.abandoned.Err() != nil {
		p.mu.Unlock()
		return item, ErrClosed
	}
	p.hand = h
	p.mu.Unlock()
	given := item.given
	item, err = p.core.prepare(&m)
	item.origin, item.given = m, given
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
	for _, item := range append(h.ready, h.now) {
		unsent = append(unsent, Unsent[T]{Message: item.origin, Err: p.core.sendError(item.origin.ID, ErrClosed, false)})
	}
	return unsent
}

// pushInTurn pushes what came through C once the buffer has room. When Close
// begins it waits no more: nothing comes after what is in hand, and messages that
// could not be stored keep their room until Close.
func (p *producer[T]) pushInTurn(items []pending[T], size int) {
	if p.reserve(p.open, size) != nil {
		for i := range items {
			items[i].Size = 0
		}
	}
	p.push(items)
}

// keepUnsent keeps a message that cannot be stored until Close; it takes room
// in the buffer like any other. One with too large a body takes that of the
// largest that is allowed, lest it keep all others out.
func (p *producer[T]) keepUnsent(item pending[T], err error) {
	_ = p.reserve(p.open, min(item.Size, p.queue.cfg.MaxBody+rowOverhead)) // kept in any case
	p.mu.Lock()
	p.unsent = append(p.unsent, Unsent[T]{Message: item.origin, Err: p.sendError(item.origin.ID, err, false)})
	p.mu.Unlock()
}
