package status_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/internal/status"
)

var (
	errFirst  = errors.New("first")
	errSecond = errors.New("second")
)

func TestAChangeIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		s := status.New(func(err error) { reported = append(reported, err) })
		for _, err := range []error{nil, errFirst, errSecond, nil, nil} {
			s.Set(err)
			require.Equal(t, err, s.Err())
			synctest.Wait()
		}
		require.Equal(t, []error{errFirst, nil}, reported)
		s.Close()
		s.Set(errSecond)
		synctest.Wait()
		require.Len(t, reported, 2, "nothing after Close")
		require.Equal(t, errSecond, s.Err())
	})
}

func TestChangesDuringACallAreReportedAsOneOrCancelOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported, next := make(chan error, 10), make(chan struct{})
		s := status.New(func(err error) {
			reported <- err
			<-next
		})
		s.Set(errFirst)
		require.Equal(t, errFirst, <-reported)
		s.Set(nil)
		s.Set(errSecond)
		next <- struct{}{}
		synctest.Wait()
		require.Empty(t, reported, "it is still an error")
		s.Set(nil)
		require.NoError(t, <-reported)
		s.Set(errFirst)
		closed := make(chan struct{})
		go func() { s.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			require.Fail(t, "Close has not waited for the call")
		default:
		}
		close(next)
		<-closed
		require.Equal(t, errFirst, <-reported, "the change before Close")
	})
}

func TestACallThatPanicsOrEndsItsGoroutineIsTheLastOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := status.New(func(err error) {
			calls++
			if err != nil {
				panic("no")
			}
			runtime.Goexit()
		})
		for i, err := range []error{errFirst, nil, errFirst} {
			s.Set(err)
			synctest.Wait()
			require.Equal(t, i+1, calls)
		}
		s.Close()
	})
}

func TestAStatusWithoutAFunctionOnlyKeepsTheError(t *testing.T) {
	s := status.New(nil)
	s.Set(errFirst)
	require.Equal(t, errFirst, s.Err())
	s.Close()
}
