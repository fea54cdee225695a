package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/bench/internal/peer"
	"github.com/chanq/chanq/sqlbatch"
)

// peerArgument makes this program measure the bare loop for bench/peers, which builds it, so that
// the loop, chanq and its peers are in one run.
const peerArgument = "peer"

var peerSystems = map[string]peer.System{"postgres/raw": {Open: openRawPeer}}

// rawPeer is the bare loop on as many connections as chanq uses at once.
type rawPeer struct{ crew bareCrew }

func openRawPeer(_ context.Context, job peer.Job) (peer.Queue, error) {
	s, err := postgresEngine.connect(place{Engine: postgresEngine.name, DSN: job.DSN, Schema: "public", Queue: "bench"})
	if err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(peer.Connections)
	s.db.SetMaxIdleConns(peer.Connections)
	return rawPeer{bareCrew{bareLoop{s, 500, 1}}}, nil
}

func (q rawPeer) Setup(ctx context.Context) error {
	return chanq.Migrate(ctx, q.crew.store.db, q.crew.store.place.Queue, q.crew.store.config())
}

func (q rawPeer) Sender(context.Context) (peer.Sender, error) { return rawSender(q), nil }

func (q rawPeer) Left(ctx context.Context) (peer.Left, error) {
	return peer.LeftPostgres(ctx, q.crew.store.db, q.crew.store.liveTable())
}

func (q rawPeer) Statements() int64 { return 0 } // counted by the server
func (q rawPeer) Close() error      { return q.crew.store.db.Close() }

type rawSender rawPeer

// Rows returns ten statements' worth, so that a session is not opened for each statement.
func (s rawSender) Rows() int { return 5000 }

func (s rawSender) SendAll(ctx context.Context, ms []peer.Message) error {
	bodies := make([][]byte, len(ms))
	for i := range ms {
		var err error
		if bodies[i], err = json.Marshal(ms[i]); err != nil {
			return err
		}
	}
	return s.crew.enqueue(ctx, bodies)
}

func (s rawSender) Send(ctx context.Context, m peer.Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	st := s.crew.store.sql.Enqueue([]sqlbatch.Row{{ID: chanq.NewID(), Body: body}})
	_, err = s.crew.store.db.ExecContext(ctx, st.Text, st.Args...)
	return err
}

func (s rawSender) Close(context.Context) error { return nil }

type rawReceiver struct {
	stop  context.CancelFunc
	acked chan error // one value: nil if all were acked, or the error
}

func (q rawPeer) Receiver(ctx context.Context, n int, deliver func(peer.Message)) (peer.Receiver, error) {
	ctx, stop := context.WithCancel(ctx)
	r := &rawReceiver{stop, make(chan error, 1)}
	go func() { // ends with its messages, or earlier by Close
		r.acked <- q.crew.claimAndAck(ctx, n, lookAgain, func(m *bareMessage) error {
			var decoded peer.Message
			if err := json.Unmarshal(m.body, &decoded); err != nil {
				return err
			}
			deliver(decoded)
			return nil
		})
	}()
	return r, nil
}

// lookAgain waits after a claim that found nothing, as long as the first pause of an idle consumer
// of chanq.
func lookAgain(ctx context.Context) error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rawReceiver) Wait(ctx context.Context) error {
	select {
	case err := <-r.acked:
		r.acked <- err // for Close
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *rawReceiver) Close(context.Context) error {
	r.stop()
	err := <-r.acked
	if errors.Is(err, context.Canceled) {
		err = nil // the normal end of a run without end
	}
	return err
}
