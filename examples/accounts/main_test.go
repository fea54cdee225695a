package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

func TestMovementsOfACustomerAreBookedInOrderAlsoThoseAfterARetry(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	var bob atomic.Bool
	go func() {
		err := run(ctx, strings.NewReader("ada 100\nada -70\nada -70\nada 30\nada -60\nbob 50\n"), write,
			filepath.Join(t.TempDir(), "accounts.db"), func(m movement) error {
				if m.Customer == "ada" && !bob.Load() {
					return errors.New("nobody may book for ada until bob's is booked")
				}
				return nil
			})
		ended <- errors.Join(err, write.Close())
	}()
	var booked []string
	for lines := bufio.NewScanner(read); len(booked) < 5 && lines.Scan(); {
		booked = append(booked, lines.Text())
		bob.Store(bob.Load() || lines.Text() == "bob +50 = 50")
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	require.NoError(t, <-ended)
	require.Equal(t, []string{"bob +50 = 50", "ada +100 = 100", "ada -70 = 30", "ada +30 = 60", "ada -60 = 0"}, booked, "the second withdrawal of 70 is not covered")
}

func TestALineThatIsNoMovementIsSaid(t *testing.T) {
	err := run(t.Context(), strings.NewReader("ada much\n"), io.Discard, filepath.Join(t.TempDir(), "accounts.db"), nil)
	require.ErrorContains(t, err, `"ada much" is not a customer and an amount`)
}
