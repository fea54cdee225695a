package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// kindFlags say what kind of queue is made.
type kindFlags struct {
	ordered, holds bool
	slots          int
}

func (k *kindFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&k.ordered, "ordered", false, "keep the messages of a key in order")
	flags.IntVar(&k.slots, "slots", 0, "with --ordered: how many slots (default 64, or as many as there are)")
	flags.BoolVar(&k.holds, "dead-key-holds", false, "with --ordered: a dead message holds up those behind it with its key")
}

func (k *kindFlags) check() error {
	switch {
	case k.slots < 0 || k.slots > sqlbatch.MaxSlots:
		return usage("--slots is %d: must be from 1 to %d", k.slots, sqlbatch.MaxSlots)
	case k.slots > 0 && !k.ordered:
		return usage("--slots is for --ordered")
	case k.holds && !k.ordered:
		return usage("--dead-key-holds is for --ordered")
	}
	return nil
}

// set has config say what the flags say.
func (k *kindFlags) set(config chanq.Config) chanq.Config {
	if k.ordered {
		config.Kind, config.Slots = chanq.KindOrdered, k.slots
	}
	if k.holds {
		config.DeadKey = chanq.DeadKeyHolds
	}
	return config
}

// config is what to migrate a queue to: what the flags say, or else what it is.
func (k *kindFlags) config(ctx context.Context, c *connection, queue string, config chanq.Config) (chanq.Config, error) {
	if k.ordered {
		return k.set(config), nil
	}
	found, err := chanq.StoredConfig(ctx, c.DB, queue, config)
	if errors.Is(err, chanq.ErrNoSchema) {
		return config, nil
	}
	return found, err
}

// openQueue opens a queue of whatever kind it is.
func openQueue(ctx context.Context, c *connection, name string, config chanq.Config) (*chanq.Queue[[]byte], error) {
	config, err := chanq.StoredConfig(ctx, c.DB, name, config)
	if err != nil && !errors.Is(err, chanq.ErrNoSchema) { // which Open tells better
		return nil, err
	}
	return chanq.Open[[]byte](ctx, c.DB, name, config)
}
