package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/bench/internal/measure"
)

// sustain runs the phase for a while and returns its last Progress, with all ages.
func sustain(t *testing.T, q Queue, job Job, length time.Duration) (last Progress, err error) {
	stop := make(chan struct{})
	time.AfterFunc(length, func() { close(stop) })
	all := measure.Histogram{}
	err = sustained(t.Context(), q, job, stop, func(p Progress) {
		last = p
		all.Merge(p.Ages)
	})
	last.Ages = all
	return last, err
}

func TestASustainedPhaseKeepsItsBacklogUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newChannelQueue()
		q.onDeliver = func(m Message, deliver func(Message)) {
			if text, err := json.Marshal(m); err != nil || len(text) != 99 { // in the year 2000 there is one digit less
				t.Errorf("%d bytes, %v", len(text), err)
			}
			time.Sleep(time.Millisecond)
			deliver(m)
		}
		last, err := sustain(t, q, Job{Body: 100, Backlog: 1000}, 5*time.Second)
		require.NoError(t, err)
		require.Zero(t, q.open.Load())
		require.InDelta(t, 5000, last.Received, 50)
		require.InDelta(t, 750, last.Sent-last.Received, 251, "two batches of 500 at most")
		require.InEpsilon(t, 0.75e6, last.Ages.Quantile(0.5), 0.5)
		require.Positive(t, last.Heap)
	})
}

func TestASustainedPhaseSendsAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last, err := sustain(t, newChannelQueue(), Job{Body: 100, Rate: 200}, 5*time.Second)
		require.NoError(t, err)
		require.InDelta(t, 1000, last.Received, 10)
		require.Zero(t, int(last.Ages.Quantile(0.99)))
	})
}

func TestTheEndOfOneSideEndsTheSustainedPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newChannelQueue()
		q.onSend = func(Message) error { return errors.New("refused") }
		_, err := sustain(t, q, Job{Body: 100, Rate: 200}, time.Hour)
		require.ErrorContains(t, err, "refused")
		require.ErrorContains(t, err, "a side ended early")
		require.Zero(t, q.open.Load())
	})
}

// The phase ends with its input, and its first line has the version.
func TestASustainedPhasePrintsLinesUntilItsInputEnds(t *testing.T) {
	in, job := io.Pipe()
	var out bytes.Buffer
	done := make(chan error, 1)
	systems := map[string]System{"a/b": {Open: func(context.Context, Job) (Queue, error) { return newChannelQueue(), nil }}}
	reading, writing := io.Pipe()
	go func() {
		done <- serve(t.Context(), systems, in, io.MultiWriter(writing, &out))
		_ = writing.Close()
	}()
	require.NoError(t, json.NewEncoder(job).Encode(Job{Engine: "a", Strategy: "b", Phase: Sustained, Body: 100, Backlog: 500}))
	lines := json.NewDecoder(reading)
	var p Progress
	for p.Received == 0 {
		require.NoError(t, lines.Decode(&p))
	}
	require.NoError(t, job.Close())
	_, err := io.Copy(io.Discard, reading)
	require.NoError(t, err)
	require.NoError(t, <-done)
}
