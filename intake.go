package chanq

import (
	"errors"

	"github.com/chanq/chanq/sqlbatch"
)

// What comes through Producer.C.

// hand is what the intake has received and not handed over.
type hand[T any] struct {
	ready []pending[T]      // encoded
	shard *shardProducer[T] // of now
	now   pending[T]        // at the codec; its origin is the message
	given bool              // Close gave it up
}

// intake receives from C until Close begins.
func (p *Producer[T]) intake() {
	defer func() {
		for _, shard := range p.shards {
			shard.backlog.Close()
		}
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
	shard := p.shards[0]
	for ok := true; ok; {
		if len(p.shards) > 1 {
			shard = p.shardFor(&m)
		}
		item, err := p.encode(shard, m, items)
		switch {
		case err == errGivenUp:
			p.usual = 0
			return
		case err != nil:
			shard.keepUnsent(item, err)
		case size+item.Size > shard.cfg.BufferBytes: // never has room for both
			p.handIn(items, size)
			items, size = append([]pending[T](nil), item), item.Size
		default:
			items, size = append(items, item), size+item.Size
		}
		if len(items) == most || size >= shard.cfg.BufferBytes/4 {
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
		p.handIn(items, size)
	}
}

// errGivenUp: Close has answered for what is in the intake's hand.
var errGivenUp = errors.New("given up")

// encode prepares a message of C. Close must not wait for the user's codec: while
// that has the message, it and what was received before it are in p.hand.
func (p *Producer[T]) encode(shard *shardProducer[T], m Message[T], ready []pending[T]) (item pending[T], err error) {
	if !meetsCodec[T]() {
		item, err = shard.prepare(&m)
		item.origin = m
		return item, err
	}
	if m.ID.IsZero() {
		m.ID = shard.queue.newID() // as it may have to be returned with one
	} else {
		item.given = true
	}
	item.origin, item.Size = m, rowOverhead
	h := &hand[T]{shard: shard, ready: ready, now: item}
	p.mu.Lock()
	if p.abandoned.Err() != nil {
		p.mu.Unlock()
		return item, ErrClosed
	}
	p.hand = h
	p.mu.Unlock()
	given := item.given
	item, err = shard.prepare(&m)
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
	give := func(shard *shardProducer[T], m Message[T]) {
		unsent = append(unsent, Unsent[T]{Message: m, Err: shard.sendError(m.ID, ErrClosed, false)})
	}
	for _, item := range h.ready {
		give(p.shards[p.indexOf(&item.row)], item.origin)
	}
	give(h.shard, h.now.origin)
	return unsent
}

// indexOf is the shard of a message that was encoded for it.
func (p *Producer[T]) indexOf(row *sqlbatch.Row) int {
	i, _ := shardOf(row.OrderKey, row.Key, row.ID, len(p.shards))
	return i
}

// handIn pushes what came through C to the shards where it belongs.
func (p *Producer[T]) handIn(items []pending[T], size int) {
	if len(p.shards) == 1 {
		p.shards[0].pushInTurn(items, size)
		return
	}
	parts := make([][]pending[T], len(p.shards))
	sizes := make([]int, len(p.shards))
	for _, item := range items {
		i := p.indexOf(&item.row)
		parts[i] = append(parts[i], item)
		sizes[i] += item.Size
	}
	for i, part := range parts {
		if len(part) > 0 {
			p.shards[i].pushInTurn(part, sizes[i])
		}
	}
}

// pushInTurn pushes what came through C once the buffer has room. When Close
// begins it waits no more: nothing comes after what is in hand, and messages that
// could not be stored keep their room until Close.
func (p *shardProducer[T]) pushInTurn(items []pending[T], size int) {
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
func (p *shardProducer[T]) keepUnsent(item pending[T], err error) {
	_ = p.reserve(p.open, min(item.Size, p.queue.cfg.MaxBody+rowOverhead)) // kept in any case
	p.mu.Lock()
	p.unsent = append(p.unsent, Unsent[T]{Message: item.origin, Err: p.sendError(item.origin.ID, err, false)})
	p.mu.Unlock()
}
