package main

import (
	"fmt"
	"hash/maphash"
)

// tally is what a strategy has received: how many bodies, and the sum of their hashes, which does
// not depend on their order. A goroutine adds at a time. A nil tally counts nothing.
type tally struct {
	n   int
	sum uint64
}

var tallySeed = maphash.MakeSeed()

func (t *tally) add(body []byte) {
	if t != nil {
		t.n++
		t.sum += maphash.Bytes(tallySeed, body)
	}
}

// check returns an error unless the bodies were received, each once and unchanged.
func (t *tally) check(bodies [][]byte) error {
	var sent tally
	for _, body := range bodies {
		sent.add(body)
	}
	switch {
	case t.n != sent.n:
		return fmt.Errorf("received %d of %d messages", t.n, sent.n)
	case t.sum != sent.sum:
		return fmt.Errorf("the %d messages received are not those that were sent", t.n)
	}
	return nil
}
