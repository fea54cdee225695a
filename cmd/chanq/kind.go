package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// kindFlags are the flags for the kind of a new queue.
type kindFlags struct {
	specFlags
	ordered    bool
	slots      int
	shard, set string
	mark       chanq.ShardMark // from these two flags; set by check
}

func (k *kindFlags) add(cmd *cobra.Command) {
	k.specFlags.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&k.ordered, "ordered", false, "keep the messages of a key in order")
	flags.IntVar(&k.slots, "slots", 0, "with --ordered: how many slots (default 64, or as many as there are)")
	flags.StringVar(&k.shard, "shard", "", "which `I/N` of a queue over several databases this is, from 0/N to N-1/N")
	flags.StringVar(&k.set, "set", "", "with --shard: the `ID` of the set that the shards are, which migrate makes up for shard 0")
}

func (k *kindFlags) check() error {
	if err := k.specFlags.check(); err != nil {
		return err
	}
	switch {
	case k.slots < 0 || k.slots > sqlbatch.MaxSlots:
		return usage("--slots is %d: must be from 1 to %d", k.slots, sqlbatch.MaxSlots)
	case k.slots > 0 && !k.ordered:
		return usage("--slots needs --ordered")
	case k.set != "" && k.shard == "":
		return usage("--set needs --shard")
	case k.shard == "":
		return nil
	}
	return k.checkShard()
}

func (k *kindFlags) checkShard() error {
	index, n, ok := strings.Cut(k.shard, "/")
	var errs [2]error
	k.mark.Index, errs[0] = strconv.Atoi(index)
	k.mark.Count, errs[1] = strconv.Atoi(n)
	if !ok || errors.Join(errs[:]...) != nil || k.mark.Count < 1 || k.mark.Count > sqlbatch.MaxShards || k.mark.Index < 0 || k.mark.Index >= k.mark.Count {
		return usage("--shard is %q: must be which one of how many, from 0/N to N-1/N, of at most %d", k.shard, sqlbatch.MaxShards)
	}
	if k.set == "" {
		return nil
	}
	set, err := chanq.ParseID(k.set)
	if err != nil || set.IsZero() {
		return usage("--set is %q: must be the ID that chanq migrate printed for shard 0", k.set)
	}
	k.mark.Set = set
	return nil
}

// apply returns config with the values of the flags.
func (k *kindFlags) apply(config chanq.Config) chanq.Config {
	config.Spec = k.spec
	if k.ordered {
		config.Kind, config.Slots = chanq.KindOrdered, k.slots
	}
	config.Shard = k.mark
	return config
}

// config returns the Config for migrating a queue: the values of the flags, otherwise those of the
// queue.
func (k *kindFlags) config(ctx context.Context, c *connection, queue string, config chanq.Config) (chanq.Config, error) {
	found, err := chanq.StoredConfig(ctx, c.DB, queue, config)
	if errors.Is(err, chanq.ErrNoSchema) {
		return k.apply(config), nil
	}
	if err != nil {
		return config, err
	}
	if config = k.apply(config); k.shard == "" {
		config.Shard = found.Shard
	}
	return config, nil
}

// openQueue opens a queue of any kind.
func openQueue(ctx context.Context, c *connection, name string, config chanq.Config) (*chanq.Queue[[]byte], error) {
	config, err := chanq.StoredConfig(ctx, c.DB, name, config) // for its shard
	if err != nil && !errors.Is(err, chanq.ErrNoSchema) {      // Open reports this error better
		return nil, err
	}
	config.Spec = chanq.Spec{}
	return chanq.Open[[]byte](ctx, c.DB, name, config)
}
