package base

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var (
	errFirst  = errors.New("first")
	errSecond = errors.New("second")
)

func TestAChangeOfATaskIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		task := Task{Changed: func(err error, ended bool) {
			require.False(t, ended)
			reported = append(reported, err)
		}}
		for _, err := range []error{nil, errFirst, errSecond, nil, nil} {
			task.Report(err)
			require.Equal(t, err, task.Err())
			synctest.Wait()
		}
		require.Equal(t, []error{errFirst, nil}, reported)
		task.End()
		task.Report(errSecond)
		synctest.Wait()
		require.Len(t, reported, 2, "nothing after End")
		require.Equal(t, errSecond, task.Err())
	})
}

func TestTheEndOfATaskEndsItsFailureAndWaitsForTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type change struct {
			err   error
			ended bool
		}
		reported, next := make(chan change, 10), make(chan struct{})
		task := Task{
			Away: func(err error) bool { return err == errSecond },
			Changed: func(err error, ended bool) {
				reported <- change{err, ended}
				<-next
			},
		}
		task.Report(errSecond)
		synctest.Wait()
		require.Empty(t, reported, "an outage")
		task.Report(errFirst)
		require.Equal(t, change{errFirst, false}, <-reported)
		over := make(chan struct{})
		go func() { task.End(); close(over) }()
		synctest.Wait()
		select {
		case <-over:
			require.Fail(t, "End has not waited for the calls")
		default:
		}
		close(next)
		<-over
		require.Equal(t, change{nil, true}, <-reported)
		task.End()
		require.Empty(t, reported)
	})
}
