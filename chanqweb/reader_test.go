package chanqweb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqfindings"
)

// counter is what a reader in a test reads: how many reads have begun.
type counter struct {
	mu    sync.Mutex
	n     int
	takes time.Duration
	err   error
	hang  chan struct{} // a driver that ignores the end of its context
}

func (c *counter) read(ctx context.Context) (int, error) {
	c.mu.Lock()
	c.n++
	n, takes, err, hang := c.n, c.takes, c.err, c.hang
	c.mu.Unlock()
	if hang != nil {
		<-hang
		return n, ctx.Err()
	}
	select {
	case <-time.After(takes):
		return n, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// set changes the counter while it may be read.
func (c *counter) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *counter) reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// visitOf begins a visit.
func visitOf(t *testing.T) *visit {
	soon, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return &visit{ctx: t.Context(), soon: soon}
}

func readerOf(t *testing.T, c *counter) *reader[int] {
	life, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	return newReader(life, figuresEvery, c.read)
}

func TestAReaderReadsForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: 10 * time.Millisecond}
		r := readerOf(t, c)
		ask := func() {
			for range 100 {
				go r.get(t.Context())
			}
		}
		ask()
		synctest.Wait()
		require.Equal(t, 1, r.get(t.Context()).Value)
		for range 20 { // 10 s
			ask()
			time.Sleep(figuresEvery / 4)
		}
		require.Equal(t, 5, c.reads(), "one read every 2 s")
		time.Sleep(time.Hour)
		require.Equal(t, 5, c.reads(), "nobody asks")
		got := r.get(t.Context())
		require.Equal(t, 6, got.Value)
		require.Equal(t, 10*time.Millisecond, time.Since(got.At))
	})
}

func TestASlowReadIsFollowedByALongerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Second}
		r := readerOf(t, c)
		r.get(t.Context())
		time.Sleep(restShare*time.Second - 1)
		require.Equal(t, 1, r.get(t.Context()).Value)
		time.Sleep(time.Nanosecond)
		require.Equal(t, 2, r.get(t.Context()).Value)
	})
}

func TestAReaderKeepsWhatItHasReadAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		r := readerOf(t, c)
		at := r.get(t.Context()).At
		c.set(func() { c.err = errors.New("gone") })
		time.Sleep(figuresEvery)
		got := r.get(t.Context())
		require.Equal(t, reading[int]{Value: 1, At: at, Err: c.err}, got)
		require.NoError(t, got.none(t.Context()), "it has a value")
		c.set(func() { c.err = nil })
		time.Sleep(figuresEvery)
		require.NoError(t, r.get(t.Context()).Err)
	})
}

// A queue could not be opened, because its file was locked.
func TestWhatCouldNotBeReadIsReadAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Hour}
		r := readerOf(t, c)
		r.every, r.within = time.Minute, 2*readTime
		require.Error(t, r.get(t.Context()).Err)
		c.set(func() { c.takes = 0 })
		time.Sleep(restShare*readTime - 1)
		require.Error(t, r.get(t.Context()).Err, "it has a pause")
		time.Sleep(time.Nanosecond)
		require.Equal(t, 2, r.get(t.Context()).Value)
		time.Sleep(time.Minute - 1)
		require.Equal(t, 2, r.get(t.Context()).Value)
		c.set(func() { c.err = errors.New("busy") })
		time.Sleep(time.Nanosecond)
		require.Error(t, r.get(t.Context()).Err)
		c.set(func() { c.err = nil })
		time.Sleep(figuresEvery)
		require.Equal(t, 4, r.get(t.Context()).Value)
	})
}

// A page waits for a lock only as long as it has nothing to show.
func TestAReadEndsAfterItsTimeAndAPageWaitsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Hour}
		r := readerOf(t, c)
		began := time.Now()
		require.ErrorIs(t, r.soon(visitOf(t)).none(t.Context()), context.DeadlineExceeded)
		require.Equal(t, readTime, time.Since(began))
		c.set(func() { c.takes = 0 })
		time.Sleep(restShare * readTime)
		require.Equal(t, 2, r.soon(visitOf(t)).Value)
		c.set(func() { c.takes = time.Hour })
		time.Sleep(figuresEvery)
		began = time.Now()
		require.Equal(t, 2, r.soon(visitOf(t)).Value)
		require.Equal(t, patience, time.Since(began))
		time.Sleep(readTime)
	})
}

func TestADriverThatHangsKeepsNoVisitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		r := readerOf(t, c)
		r.get(t.Context())
		c.set(func() { c.hang = make(chan struct{}) })
		for range 3 {
			time.Sleep(time.Minute)
			began := time.Now()
			require.Equal(t, 1, r.soon(visitOf(t)).Value)
			require.Equal(t, patience, time.Since(began))
		}
		require.Equal(t, 2, c.reads(), "no second read begins")
		close(c.hang)
		c.set(func() { c.hang = nil })
		require.Error(t, r.get(t.Context()).Err, "what came too late counts for nothing")
	})
}

// A read that runs during a change may have read before it.
func TestAReadThatBeganBeforeAChangeIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: time.Second / 10}
		r := readerOf(t, c)
		r.ask()
		time.Sleep(time.Second / 20)
		r.expire()
		require.Equal(t, 2, r.get(t.Context()).Value)
		r.expire()
		require.Equal(t, 3, r.get(t.Context()).Value)
		require.Equal(t, 3, r.get(t.Context()).Value)
	})
}

func TestAPanicOfAHistoryIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t.Context(), figuresEvery, func(context.Context) (int, error) { panic("no samples") })
		require.ErrorContains(t, r.get(t.Context()).none(t.Context()), "no samples")
	})
}

// Names of missing queues use no memory.
func TestMissingQueuesAreNotCached(t *testing.T) {
	s := newStore(t.Context(), nil, Config{}, func(string, error) {})
	s.names = newReader(t.Context(), figuresEvery, func(context.Context) ([]string, error) { return []string{"mail"}, nil })
	for i := range 100 {
		_, err := s.watch(visitOf(t), fmt.Sprintf("queue%d", i))
		require.ErrorIs(t, err, errNoQueue)
	}
	require.Empty(t, s.queues)
	_, err := s.watch(visitOf(t), "mail")
	require.NoError(t, err)
	require.Len(t, s.queues, 1)
}

// However many look at the overview.
func TestQueuesThatNoPageShowsAreLookedAtInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queues, shown, pace = 400, 100, othersAsked * time.Second / figuresEvery // a second
		s := newStore(t.Context(), nil, Config{}, func(string, error) {})
		var mu sync.Mutex
		looks := map[string]int{}
		for i := range queues {
			name := fmt.Sprintf("queue%03d", i)
			s.names.last.Value = append(s.names.last.Value, name)
			s.watched(name).findings = newReader(t.Context(), 2*figuresEvery, func(context.Context) ([]chanqfindings.Finding, error) {
				mu.Lock()
				defer mu.Unlock()
				looks[name]++
				return nil, nil
			})
		}
		for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(100 * time.Millisecond) {
			for _, name := range s.names.last.Value[:shown] {
				s.watched(name).findings.ask()
			}
			s.others.ask()
		}
		synctest.Wait()
		const turns = 120 * int(pace) / (queues - shown)
		for _, name := range s.names.last.Value[shown:] {
			require.InDelta(t, turns, looks[name], 1, name)
		}
	})
}

// Eight readers use the database all the time.
func TestAWaitForAPlaceIsNoErrorAndTakesNoTimeOfTheRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{takes: readTime - 1}
		r := readerOf(t, c)
		s := newStore(r.life, nil, Config{}, func(string, error) {})
		r.begin = s.place
		for range readsAtOnce {
			s.places <- struct{}{}
		}
		visit := visitOf(t)
		require.Equal(t, reading[int]{}, r.get(visit.soon), "a visitor has a patience of its own")
		time.Sleep(10 * readTime)
		require.Equal(t, reading[int]{}, r.known())
		require.Zero(t, r.tried(time.Now()), "it counts the read")
		<-s.places
		got := r.get(t.Context())
		require.NoError(t, got.Err)
		require.Equal(t, 1, got.Value)
		require.Equal(t, c.takes, time.Since(got.At), "the age of what was read")
		require.Len(t, s.places, readsAtOnce-1)
	})
}
