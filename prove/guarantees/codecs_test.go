package guarantees

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

// Misbehaviour of a user's codec that must not harm chanq; userFunctions has the tests of other
// functions.
var codecs = []test{
	{"ADecoderThatPanicsDeadLettersItsMessageAlone", decodersMisbehave},
	{"ADecoderMayKeepWhatItReads", decodersKeep},
	{"ADecoderThatBlocksDoesNotBlockShutdown", decodersBlock},
	{"AnEncoderThatPanicsCostsItsMessageAlone", encodersMisbehave},
	{"AnEncoderThatBlocksDoesNotBlockClose", encodersBlock},
	{"AnOutputWhoseEncoderPanicsDeadLettersItsInput", pipeEncodersPanic},
	{"TextThatJSONWouldChangeIsRefused", textIsKept},
}

// note is a body for tests of codecs.
type note struct{ Text string }

// moody is a codec that behaves as the body says.
type moody struct {
	ask  func(who string)
	gate chan struct{}
	kept [][]byte
	mu   sync.Mutex
}

func (c *moody) feel(body, who string) error {
	if c.ask != nil {
		c.ask(who)
	}
	switch {
	case strings.HasPrefix(body, who+" panics"):
		panic(who)
	case strings.HasPrefix(body, who+" fails rudely"):
		return &rude{"Error", rudely("no")}
	case strings.HasPrefix(body, who+" blocks"):
		<-c.gate
	}
	return nil
}

func (c *moody) Encode(body any) ([]byte, error) {
	text := body.(note).Text
	return []byte(text), c.feel(text, "encode")
}

func (c *moody) Decode(data []byte, body any) error {
	c.mu.Lock()
	c.kept = append(c.kept, data)
	c.mu.Unlock()
	body.(*note).Text = string(data)
	return c.feel(string(data), "decode")
}

func notes(texts ...string) []chanq.Message[note] {
	ms := make([]chanq.Message[note], len(texts))
	for i, text := range texts {
		ms[i].Body.Text = text
	}
	return ms
}

func decodersMisbehave(w *world) {
	mixed := []string{"first", "decode panics", "decode panics too", "middle", "decode fails rudely", "last", "decode panics at the end"}
	for _, way := range []string{"work"} {
		q := testdb.QueueOf[note](w, way, chanq.Config{Codec: &moody{}})
		sent := testdb.Send(w, q, notes(mixed...)...)
		good := testdb.Take(w, testdb.Start(w, q, chanq.ConsumerConfig{}), 3)
		require.Equal(w, []note{{"first"}, {"middle"}, {"last"}}, testdb.Bodies(good), way)
		w.Eventually("the others are dead", func() bool { return testdb.Stats(w, q).Dead == len(mixed)-3 })
		for i, text := range mixed {
			if e := testdb.Get(w, q, sent[i]); strings.HasPrefix(text, "decode") {
				require.Equal(w, chanqadmin.StateDead, e.State, text)
				require.Equal(w, text, string(e.Body), "its bytes are kept")
				require.Contains(w, e.LastError, "cannot decode", text)
			}
		}
		for _, l := range good {
			require.NoError(w, l.Ack())
			require.NoError(w, l.Wait(w.Soon()))
		}
	}
}

func decodersKeep(w *world) {
	codec := &moody{}
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: codec})
	testdb.Send(w, q, notes(numbers(100)...)...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{Prefetch: 10})
	for _, l := range testdb.Take(w, c, 100) {
		require.NoError(w, l.Ack())
	}
	require.NoError(w, c.Shutdown(w.Soon()))
	codec.mu.Lock()
	defer codec.mu.Unlock()
	got := make([]string, len(codec.kept))
	for i, data := range codec.kept {
		got[i] = string(data)
	}
	require.Equal(w, numbers(100), got, "the bytes are not overwritten")
}

func decodersBlock(w *world) {
	codec := &moody{gate: make(chan struct{})}
	open := sync.OnceFunc(func() { close(codec.gate) })
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: codec})
	testdb.Send(w, q, notes("held")...)
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: lastingLease})
	w.Cleanup(open) // before the consumer's cleanup
	held := testdb.Take(w, c, 1)[0]
	testdb.Send(w, q, notes("decode blocks")...)
	at := held.Deadline()
	w.Eventually("the lease that was delivered before is extended", func() bool { return held.Deadline().Sub(at) > lastingLease/2 })
	require.NoError(w, held.Ack())
	require.NoError(w, held.Wait(w.Soon()), "and settled")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(w, c.Shutdown(ctx), context.DeadlineExceeded)
	open()
	require.NoError(w, c.Shutdown(w.Soon()), "its goroutines end")
}

func encodersMisbehave(w *world) {
	q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: &moody{}})
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	mixed := []string{"first", "encode panics", "middle", "encode fails rudely", "last"}
	for _, m := range notes(mixed...) {
		p.C() <- m
	}
	require.ErrorContains(w, p.Flush(w.Soon()), "messages sent on C that could not be stored: 2")
	_, err := p.Send(w.Soon(), notes("encode panics in Send")[0])
	require.ErrorContains(w, err, "codec panicked")
	_, err = p.Send(w.Soon(), notes("sent")[0])
	require.NoError(w, err)
	var unsent *chanq.UnsentError[note]
	require.ErrorAs(w, p.Close(w.Soon()), &unsent)
	require.Len(w, unsent.Unsent, 2)
	for _, u := range unsent.Unsent {
		require.True(w, strings.HasPrefix(u.Message.Body.Text, "encode "), u.Message.Body.Text)
		require.False(w, u.Message.ID.IsZero())
		require.ErrorContains(w, u.Err, "Message.Body")
	}
	require.Equal(w, []note{{"first"}, {"middle"}, {"last"}, {"sent"}}, testdb.Bodies(testdb.Leases(testdb.Lease(w, q, 4, time.Minute))))
}

func encodersBlock(w *world) {
	for name, late := range map[string]bool{"returns late": true, "does not return": false} {
		codec := &moody{gate: make(chan struct{})}
		open := sync.OnceFunc(func() { close(codec.gate) })
		w.Cleanup(open)
		q := testdb.QueueOf[note](w, "work", chanq.Config{Codec: codec})
		p := testdb.Produce(w, q, chanq.ProducerConfig{})
		p.C() <- notes("encode fails rudely")[0]
		p.C() <- notes("encode blocks")[0]
		_, err := p.Send(w.Soon(), notes("sent with it")[0])
		require.NoError(w, err)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- p.Close(ctx) }()
		if <-ctx.Done(); late {
			pass(100 * time.Millisecond)
			open()
		}
		err = testdb.Receive(w, closed, "Close returns")
		var unsent *chanq.UnsentError[note]
		require.ErrorAs(w, err, &unsent)
		kept := map[string]chanq.Unsent[note]{}
		for _, u := range unsent.Unsent {
			kept[u.Message.Body.Text] = u
		}
		require.Contains(w, kept, "encode fails rudely", name)
		require.Equal(w, !late, strings.Contains(err.Error(), "a codec does not return"), err)
		open()
		require.NoError(w, p.Close(w.Soon()), "its goroutines end")
		stored := testdb.Bodies(testdb.Leases(testdb.Lease(w, q, testdb.Stats(w, q).Ready, time.Hour)))
		require.Contains(w, stored, note{"sent with it"}, name)
		blocked, isKept := kept["encode blocks"]
		isStored := slices.Contains(stored, note{"encode blocks"})
		require.Equal(w, late, isKept || isStored, "a message is stored or returned, unless Close reports that a codec has it")
		var failed *chanq.OpError
		require.True(w, !isKept || !isStored || errors.As(blocked.Err, &failed) && failed.Unknown, "it says so if it may be stored: %v", blocked.Err)
	}
}

func pipeEncodersPanic(w *world) {
	from, to := w.Queue("work", chanq.Config{}), testdb.QueueOf[note](w, "output", chanq.Config{Codec: &moody{}})
	ids := testdb.Send(w, from, testdb.Texts("encode panics", "encode fails rudely", "last")...)
	c := testdb.Start(w, from, chanq.ConsumerConfig{Backoff: later})
	ended := make(chan error, 1)
	go func() {
		ended <- chanq.Pipe(c, to, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[note], error) {
			return notes("fine", l.Body), nil
		})
	}()
	w.Eventually("all are settled", func() bool { return settled(c) == 3 })
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, <-ended)
	for _, id := range ids[:2] {
		e := testdb.Get(w, from, id)
		require.Equal(w, chanqadmin.StateDead, e.State)
		require.Contains(w, e.LastError, "output 1: Message.Body", "the error names the invalid field")
	}
	require.Equal(w, []note{{"fine"}, {"last"}}, testdb.Bodies(testdb.Leases(testdb.Lease(w, to, 2, time.Minute))))
}

// textIsKept sends a file's name in Latin-1 in every way.
func textIsKept(w *world) {
	q, from := testdb.QueueOf[note](w, "output", chanq.Config{}), w.Queue("work", chanq.Config{})
	const name, says = "resum\xe9.pdf", "Message.Body: guarantees.note.Text is not UTF-8"
	_, err := q.Send(w.Soon(), notes("first", name)...)
	require.ErrorContains(w, err, says)
	tx := w.begin(w.DB)
	_, err = q.SendTx(w.Soon(), tx, notes(name)...)
	require.ErrorContains(w, err, says)
	require.NoError(w, tx.Commit())
	p := testdb.Produce(w, q, chanq.ProducerConfig{})
	_, err = p.Send(w.Soon(), notes(name)[0])
	require.ErrorContains(w, err, says)
	p.C() <- notes(name)[0]
	require.ErrorContains(w, p.Flush(w.Soon()), says)
	require.Equal(w, name, p.Unsent()[0].Message.Body.Text, "the caller gets it back as it was")
	_, err = q.Send(w.Soon(), chanq.Message[note]{Headers: map[string]string{"name": name}})
	require.ErrorContains(w, err, "Message.Headers: map[string]string[name] is not UTF-8")

	id := testdb.Send(w, from, testdb.Texts(name)...)[0] // a string is stored as it is
	c := testdb.Start(w, from, chanq.ConsumerConfig{})
	ended := make(chan error, 1)
	go func() {
		ended <- chanq.Pipe(c, q, 1, func(_ context.Context, l *chanq.Lease[string]) ([]chanq.Message[note], error) {
			return notes(l.Body), nil
		})
	}()
	w.Eventually("the output is refused", func() bool { return settled(c) == 1 })
	require.NoError(w, c.Shutdown(w.Soon()))
	require.NoError(w, <-ended)
	e := testdb.Get(w, from, id)
	require.Equal(w, chanq.CauseOutput, e.Cause)
	require.Contains(w, e.LastError, says)
	require.Zero(w, testdb.Stats(w, q).Ready, "nothing was stored")

	kept := []string{"\ufffd", `\ufffd`, "nul\x00"}
	testdb.Send(w, q, notes(kept...)...)
	require.Equal(w, notes(kept...)[2].Body, testdb.Leases(testdb.Lease(w, q, 3, time.Minute))[2].Body)
}
