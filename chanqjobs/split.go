package chanqjobs

import (
	"context"
	"fmt"

	"github.com/chanq/chanq"
)

// Chan registers an unbuffered channel as the receiver of a kind, and returns it. Mux.Split feeds and closes it. The readers settle its
// leases, for example by chanq.Handle. Until a job of this kind is read, Split passes on no other job.
func Chan[T any](m *Mux, k *Kind[T]) <-chan *chanq.Lease[T] {
	c := make(chan *chanq.Lease[T])
	m.add(k.name, false, &route{
		call: func(context.Context, *chanq.Lease[Job], *[]chanq.Message[Job]) error {
			return fmt.Errorf("chanqjobs: the kind %q has a channel (Chan): run Mux.Split", k.name)
		},
		pass: func(l *chanq.Lease[Job], ended <-chan struct{}) error {
			opened, err := k.Open(l)
			if err != nil {
				return l.Nack(err)
			}
			select {
			case c <- opened:
				return nil
			case <-l.Stopping(): // its reader might have left
			case <-ended:
			}
			return l.Release()
		},
		close: func() { close(c) },
	})
	return c
}

// Split reads leases until the channel is closed, usually Consumer.C. It sends a job on the channel of its kind, or else handles it in one of
// the workers, as chanq.Handle does. Then it closes the channels of Chan, and returns when the last handler has returned.
//
// Jobs are passed on one after another. While a channel is not read, or while all workers are busy, the other kinds wait as well. If a kind
// must not wait for others, give it a separate queue: see docs/guides/kinds.md.
//
// Run one Split per Mux. If a handler calls runtime.Goexit, as t.FailNow does, Split returns an error when no worker is left.
func (m *Mux) Split(leases <-chan *chanq.Lease[Job], workers int) error {
	rest, ended := make(chan *chanq.Lease[Job]), make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		err = chanq.Handle(rest, workers, m.Handle)
	}()
	m.feed(leases, rest, ended)
	for _, r := range m.routes {
		if r.close != nil {
			r.close()
		}
	}
	close(rest)
	<-ended
	return err
}

// feed passes leases on until their channel is closed, or the workers have left.
func (m *Mux) feed(leases <-chan *chanq.Lease[Job], rest chan<- *chanq.Lease[Job], ended <-chan struct{}) {
	for {
		select {
		case l, open := <-leases:
			if !open {
				return
			}
			if r := m.routes[l.Type]; r != nil && r.pass != nil {
				_ = r.pass(l, ended) // the consumer reports an error of a settle
				continue
			}
			select {
			case rest <- l:
			case <-l.Stopping():
				_ = l.Release()
			case <-ended:
				_ = l.Release()
			}
		case <-ended:
			return
		}
	}
}
