package guarantees

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
	"github.com/chanq/chanq/sqlbatch"
)

// The row of a queue and the programs that use the queue.
var queueSpecs = []test{
	{"OpenRejectsAnotherSpecThanTheStoredOne", specsDiffer},
	{"AFieldThatIsZeroIsTheStoredOne", specAdopted},
	{"ConsumersAdoptWhatConfigureChanges", configureLive},
	{"ConsumersOfOrderedQueuesAdoptWhatConfigureChanges", configureOrdered},
	{"DeadMessagesAreDeletedAfterRetainDead", retainDead},
	{"AProgramUsesALaterSchemaThatAdmitsIt", laterSchema},
}

// policySpec has a non-default value in each field that can be changed.
var policySpec = chanq.Spec{MaxAttempts: 7, MaxBody: 4096, Retain: time.Hour, RetainDead: 48 * time.Hour}

func specsDiffer(w *world) {
	w.Queue("work", chanq.Config{Spec: policySpec})
	for says, spec := range map[string]chanq.Spec{
		"Spec.Kind is ordered, and the database has plain":              {Kind: chanq.KindOrdered},
		"Spec.Slots is 3, and the database has 0":                       {Slots: 3},
		"Spec.MaxAttempts is 8, and the database has 7":                 {MaxAttempts: 8},
		"Spec.MaxAttempts is unlimited, and the database has 7":         {MaxAttempts: chanq.UnlimitedAttempts},
		"Spec.MaxBody is 1048576, and the database has 4096":            {MaxBody: 1 << 20},
		"Spec.Retain is RetainNone, and the database has 1h0m0s":        {Retain: chanq.RetainNone},
		"Spec.RetainDead is 24h0m0s, and the database has 48h0m0s":      {RetainDead: 24 * time.Hour},
		"Spec.MaxKeys is 9, and the database has 0; leave the field":    {MaxKeys: 9},
		"Spec.DeadKey is holds, and the database has DeadKey(0); leave": {DeadKey: chanq.DeadKeyHolds},
	} {
		_, err := chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{Spec: spec})
		require.ErrorIs(w, err, chanq.ErrSpec)
		require.ErrorContains(w, err, says)
	}
	for _, spec := range []chanq.Spec{{}, policySpec, {MaxBody: 4096}} {
		_, err := chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{Spec: spec})
		require.NoError(w, err)
	}
}

func specAdopted(w *world) {
	q := w.Queue("work", chanq.Config{})
	standard := chanq.Spec{Kind: chanq.KindPlain, MaxAttempts: 20, MaxBody: 1 << 20, Retain: chanq.RetainNone, RetainDead: chanq.RetainAll}
	require.Equal(w, standard, q.Spec())
	require.NoError(w, w.Migrate("work", chanq.Config{Spec: policySpec}), "Migrate stores the fields that are not zero")
	require.NoError(w, w.Migrate("work", chanq.Config{}), "and leaves the other fields unchanged")
	require.NoError(w, w.Migrate("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: chanq.UnlimitedAttempts}}))
	want := policySpec
	want.Kind, want.MaxAttempts = chanq.KindPlain, chanq.UnlimitedAttempts
	require.Equal(w, want, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{}).Spec())
	require.NoError(w, w.Migrate("work", chanq.Config{Spec: q.Spec()}), "a whole Spec is a value of Config.Spec")
	require.Equal(w, standard, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{Spec: standard}).Spec())

	_, err := testdb.OpenOn[string](w, w.DB, "work", chanq.Config{}).SendTx(w.Soon(), nil)
	require.Error(w, err)
	require.ErrorContains(w, w.Migrate("work", chanq.Config{Spec: chanq.Spec{MaxAttempts: -2}}), "Spec.MaxAttempts is -2")
	require.ErrorContains(w, w.Migrate("work", chanq.Config{Spec: chanq.Spec{Slots: 4}}), "Spec.Slots is 4")
	require.Equal(w, standard, testdb.OpenOn[string](w, w.DB, "work", chanq.Config{}).Spec(), "bad input changes nothing")
}

// beat is longer than the time between two heartbeats.
const beat = 3 * time.Second

func configureLive(w *world) {
	q := w.Queue("work", chanq.Config{})
	another := testdb.OpenOn[string](w, w.Open(), "work", chanq.Config{})
	failing := errors.New("it fails")
	c, err := q.Consume(w.Context(), chanq.ConsumerConfig{LeaseFor: beat, Backoff: func(*chanq.Delivery, error) time.Duration { return time.Hour }})
	require.NoError(w, err)
	go func() { // until the consumer stops
		for l := range c.C() {
			if l.Body == "bad" {
				_ = l.Nack(failing)
			} else {
				_ = l.Ack()
			}
		}
	}()
	testdb.Send(w, q, testdb.Texts("bad", "good")...)
	w.Eventually("with the defaults", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Scheduled: 1} })

	changed := chanq.Spec{MaxAttempts: 1, Retain: time.Hour, MaxBody: 10}
	require.NoError(w, testdb.Admin(another).Configure(w.Soon(), changed, chanqadmin.Change{}))
	w.Eventually("the new policy is adopted", func() bool { return q.Spec().MaxAttempts == 1 })
	testdb.Send(w, q, testdb.Texts("bad", "good")...)
	w.Eventually("with the new values", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Scheduled: 1, Dead: 1, Done: 1} })
	p, err := q.Producer(w.Soon(), chanq.ProducerConfig{})
	require.NoError(w, err)
	_, err = p.Send(w.Soon(), chanq.Message[string]{Body: "eleven bytes"})
	require.ErrorIs(w, err, chanq.ErrTooLarge)
	require.NoError(w, p.Close(w.Soon()))

	spec, err := testdb.Admin(another).Spec(w.Soon())
	require.NoError(w, err)
	require.Equal(w, q.Spec(), spec, "operators see the same Spec")
	require.ErrorIs(w, testdb.Admin(another).Configure(w.Soon(), chanq.Spec{Kind: chanq.KindOrdered}, chanqadmin.Change{}), chanq.ErrSpec)
	require.NoError(w, c.Shutdown(w.Soon()))
}

func configureOrdered(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 1, MaxKeys: 1, MaxAttempts: 1}})
	var working, most atomic.Int64
	open := make(chan struct{})
	finish := sync.OnceFunc(func() { close(open) })
	c := testdb.Start(w, q, chanq.ConsumerConfig{LeaseFor: 5 * beat / 2}) // no lease may expire
	w.Cleanup(finish)
	go func() {
		for l := range c.C() {
			go func() {
				most.Store(max(most.Load(), working.Add(1)))
				defer working.Add(-1)
				if l.Body == "bad" {
					_ = l.Nack(errors.New("it fails"))
					return
				}
				<-open
				_ = l.Ack()
			}()
		}
	}()
	for _, key := range []string{"a", "b", "c"} {
		testdb.Send(w, q, chanq.Message[string]{Key: key, Body: "good"})
	}
	w.Eventually("the first is handled", func() bool { return working.Load() == 1 })
	require.NoError(w, testdb.Admin(q).Configure(w.Soon(), chanq.Spec{MaxKeys: chanq.UnlimitedKeys, DeadKey: chanq.DeadKeyHolds}, chanqadmin.Change{}))
	w.Eventually("the other keys are handled", func() bool { return working.Load() == 3 })
	finish()
	w.Eventually("all are acked", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{} })

	testdb.Send(w, q, chanq.Message[string]{Key: "a", Body: "bad"}, chanq.Message[string]{Key: "a", Body: "good"}, chanq.Message[string]{Key: "b", Body: "good"})
	w.Eventually("the dead message holds its key", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Ready: 1, Dead: 1} })
	time.Sleep(beat)
	require.Equal(w, chanqadmin.Stats{Ready: 1, Dead: 1}, testdb.Counted(w, q))
	require.NoError(w, testdb.Admin(q).Configure(w.Soon(), chanq.Spec{DeadKey: chanq.DeadKeyOpens}, chanqadmin.Change{}))
	w.Eventually("the key opens", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Dead: 1} })
	testdb.Send(w, q, chanq.Message[string]{Key: "c", Body: "bad"}, chanq.Message[string]{Key: "c", Body: "good"})
	w.Eventually("a dead message holds nothing", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Dead: 2} })
	require.NoError(w, c.Shutdown(w.Soon()))
}

func retainDead(w *world) {
	q := w.Queue("work", chanq.Config{Spec: chanq.Spec{RetainDead: steadyLease}})
	w.StrikeAll(faultdb.Fail(w.Failure(sqlbatch.Refused)), w.Statements("work").Trim(sqlbatch.Dead, steadyLease, 1, 0)) // until it was seen
	kept := w.Queue("kept", chanq.Config{})
	for _, of := range []*chanq.Queue[string]{q, kept} {
		testdb.Send(w, of, testdb.Texts("bad")...)
		c, err := of.Consume(w.Context(), chanq.ConsumerConfig{})
		require.NoError(w, err)
		require.NoError(w, (<-c.C()).Settle(chanq.DeadLetter(errors.New("it is bad"))))
		w.Eventually("it is dead", func() bool { return testdb.Counted(w, of).Dead == 1 })
		defer func() { require.NoError(w, c.Shutdown(w.Soon())) }()
	}
	w.Heal()
	w.Eventually("it is deleted", func() bool { return testdb.Counted(w, q).Dead == 0 })
	require.Equal(w, 1, testdb.Counted(w, kept).Dead, "without RetainDead the dead message stays")
}

// laterSchema creates tables as an additive migration of a later version would leave them, with unfinished messages.
func laterSchema(w *world) {
	cfg := chanq.Config{Spec: chanq.Spec{Retain: time.Hour}}
	q := w.Queue("work", cfg)
	testdb.Send(w, q, testdb.Texts("before")...)
	record := w.Statements("work").Record(sqlbatch.Version+1, sqlbatch.DefaultPolicy)
	_, err := w.DB.ExecContext(w.Soon(), record.Text, record.Args...)
	require.NoError(w, err)
	w.Define("CREATE TABLE chanq__later (id bigint NOT NULL PRIMARY KEY)")
	w.Define("CREATE TABLE chanq_work__later (id bigint NOT NULL PRIMARY KEY)")
	if w.Engine.Dialect.Name() != "sqlserver" { // the emulator does not add columns
		for _, table := range []string{"_work", "_work__dead", "_work__done", "__queues", "__consumers", "__samples"} {
			w.Define("ALTER TABLE chanq" + table + " ADD later text")
		}
	}

	cfg.MaxAttempts = 3
	require.NoError(w, w.Migrate("work", cfg), "only the policy is changed")
	old := testdb.OpenOn[string](w, w.Open(), "work", chanq.Config{})
	require.Equal(w, 3, old.Spec().MaxAttempts)
	testdb.Send(w, old, testdb.Texts("after", "bad")...)
	c, err := old.Consume(w.Context(), chanq.ConsumerConfig{Backoff: func(*chanq.Delivery, error) time.Duration { return time.Millisecond }})
	require.NoError(w, err)
	settle := func(tries int) {
		for range tries {
			if l := <-c.C(); l.Body == "bad" {
				require.NoError(w, l.Nack(errors.New("it is bad")))
			} else {
				require.NoError(w, l.Ack())
			}
		}
	}
	settle(5)
	w.Eventually("one is dead", func() bool { return testdb.Counted(w, q) == chanqadmin.Stats{Dead: 1, Done: 2} })
	n := w.redrive(old, 0)
	require.Equal(w, 1, n)
	settle(3)
	w.Eventually("it is dead again", func() bool { return testdb.Counted(w, q).Dead == 1 })
	require.NoError(w, c.Shutdown(w.Soon()))

	for column, says := range map[string]string{"min_version": "for programs of version 8 or later", "features": "with features (0x8)"} {
		w.Exec("UPDATE chanq__queues SET " + column + " = 8")
		_, err := chanq.Open[string](w.Soon(), w.DB, "work", chanq.Config{})
		require.ErrorIs(w, err, chanq.ErrNewerSchema)
		require.ErrorContains(w, err, says)
		require.ErrorIs(w, w.Migrate("work", chanq.Config{}), chanq.ErrNewerSchema)
		w.Exec("UPDATE chanq__queues SET min_version = 1, features = 0")
	}
}
