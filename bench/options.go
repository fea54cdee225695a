package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/bench/internal/measure"
)

// options are the flags of the commands.
type options struct {
	engine, dsn, db string
	format, record  string
	rounds          int
	body, batch     int
	send            string

	strategies              []string
	n, single, articleBatch int
	suiteFor                time.Duration

	rate, saturation float64
	loads            []float64 // as fractions of saturation, which is the rate of the same queue's pipeline
	latencyFor       time.Duration
	idle, notifier   bool
	crowd, pairs     int
	steps            []string
	log              string
	rest, burst      time.Duration

	backlog, consumers, processes int
	hold, holdSend                bool
	sustainedFor, every           time.Duration
	plot                          string

	order       bool
	slots, keys int // of an ordered queue, and of its messages; 0: a plain queue, and messages without keys

	shards bool

	scale scaleOptions

	crews    []crew
	inFlight int

	axes    []string
	growth  map[string][]int // sizes of each axis
	samples int

	command string // as entered, for reports

	cpuProfile, memProfile, mutexProfile, blockProfile string
}

// The values of -send and -format.
const (
	sendChannel, sendBatch  = "channel", "batch"
	formatTable, formatJSON = "table", "json"
)

const (
	maxBatch = 512     // the largest that ProducerConfig.BatchRows allows
	maxBody  = 1 << 20 // Spec.MaxBody's default
)

// parse reads the flags of a command and checks all of them, so that nothing is written for a run
// that cannot succeed.
func parse(command string, args []string, usage io.Writer) (options, error) {
	o := options{command: commandLine(command, args)}
	f := flag.NewFlagSet("bench "+command, flag.ContinueOnError)
	f.SetOutput(usage)
	finish := o.declare(f, command)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	return o, errors.Join(finish(), o.check(f.Args()))
}

// commandLine returns the command line for a report, without addresses, which may have passwords.
func commandLine(command string, args []string) string {
	line := "go run ./bench " + command
	for i, arg := range args {
		if i > 0 && strings.TrimLeft(args[i-1], "-") == "dsn" {
			arg = `"$DSN"`
		} else if name, _, ok := strings.Cut(arg, "="); ok && strings.TrimLeft(name, "-") == "dsn" {
			arg = name + `="$DSN"`
		}
		line += " " + arg
	}
	return line
}

// declare declares the flags of a command. After parsing, finish reads the flags that are lists.
func (o *options) declare(f *flag.FlagSet, command string) (finish func() error) {
	f.StringVar(&o.engine, "engine", "sqlite", "database: "+strings.Join(engineNames(), ", "))
	f.StringVar(&o.dsn, "dsn", "", "PostgreSQL or SQL Server to use; queues are made in it and dropped; with -engine sqlserver, "+emulator+" is the SQL Server emulator of the tests")
	f.StringVar(&o.db, "db", "", "SQLite file to make and remove for each measurement (default a temporary one)")
	f.StringVar(&o.format, "format", formatTable, "table, or json: one object a line for each measurement")
	f.StringVar(&o.record, "record", "", "with -format table: write the objects of -format json to this file, too")
	rounds := 3
	if command == "suite" {
		rounds = 9
		o.declareSuite(f)
	}
	f.IntVar(&o.rounds, "rounds", rounds, "measured rounds; throughput and growth discard one more that comes before")
	f.IntVar(&o.body, "body", 200, "bytes of a body")
	f.IntVar(&o.batch, "batch", 500, fmt.Sprintf("rows of a statement, 1 to %d", maxBatch))
	f.StringVar(&o.send, "send", sendChannel, "how chanq is given messages: channel (Producer.C) or batch (SendBatch)")
	f.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile here; samples have the label phase, such as \"chanq drain\"")
	f.StringVar(&o.memProfile, "memprofile", "", "write a profile of all allocations here")
	f.StringVar(&o.mutexProfile, "mutexprofile", "", "write a profile of contended mutexes here")
	f.StringVar(&o.blockProfile, "blockprofile", "", "write a profile of waiting goroutines here")
	chosen, crews, loads, axes, steps, ordered, lists := "", "", "", "", "", false, map[string]*string{}
	if command == "throughput" || command == "report" {
		f.StringVar(&chosen, "strategies", "", "comma-separated: "+strings.Join(strategyNames(), ", ")+" (default those that the engine has)")
		f.IntVar(&o.n, "n", 50_000, "messages")
		f.IntVar(&o.single, "single-n", 5_000, "at most this many messages for single and the articles' methods, which are slow")
		f.IntVar(&o.articleBatch, "article-batch", 1, "messages of one take, for those of the articles' methods that can take more than one")
	}
	if command == "senders" || command == "report" {
		f.StringVar(&crews, "senders", "32x1,4x100", "comma-separated: goroutines x messages of a call")
		f.IntVar(&o.inFlight, "in-flight", 1, "ProducerConfig.InFlight, of senders")
	}
	if command == "senders" {
		f.StringVar(&chosen, "strategies", "raw,chanq", "comma-separated: raw, chanq")
		f.IntVar(&o.n, "n", 20_000, "messages")
	}
	if command == "latency" || command == "report" {
		f.Float64Var(&o.rate, "rate", 0, "messages a second, in place of -loads")
		f.StringVar(&loads, "loads", "0.5,0.1", "comma-separated: parts of saturation to send at")
		f.Float64Var(&o.saturation, "saturation", 0, "messages a second that are saturation (default measured)")
		f.DurationVar(&o.latencyFor, "for", 10*time.Second, "how long messages are sent at each rate, after a warm-up of a tenth of it; with -idle in gaps")
	}
	if command == "latency" {
		o.declareIdle(f, &steps)
	}
	if command == "sustained" {
		f.DurationVar(&o.sustainedFor, "for", 5*time.Minute, "how long")
		f.DurationVar(&o.every, "every", 5*time.Second, "time between two lines")
		f.Float64Var(&o.rate, "rate", 0, "messages a second (default as fast as it goes, with the backlog kept)")
		f.IntVar(&o.backlog, "backlog", 20_000, "messages that are sent and not yet read, without -rate")
		f.IntVar(&o.consumers, "consumers", 1, "consumers of a process")
		f.IntVar(&o.processes, "processes", 1, "processes that consume; 1 is that of the producer, more are others")
		f.BoolVar(&o.hold, "hold", false, fmt.Sprintf("open a snapshot in another session after %v, and keep it", measure.HoldAfter))
		f.BoolVar(&o.holdSend, "hold-send", false, fmt.Sprintf("send a message in a transaction after %v, and keep it open", measure.HoldAfter))
		f.StringVar(&o.plot, "plot", "", "write throughput and size over time here, as SVG")
	}
	if command == "sustained" {
		f.BoolVar(&ordered, "ordered", false, fmt.Sprintf("an ordered queue, and messages of %d keys", manyKeys))
	}
	if command == "order" {
		o.declareOrder(f, &steps, lists)
	}
	if command == "scale" {
		o.declareScale(f, &steps)
	}
	if command == shardAxis.name {
		o.shards = true
		lists[shardAxis.name] = f.String(shardAxis.name, shardAxis.sizes, shardAxis.about)
		f.IntVar(&o.n, "n", 50_000, "messages")
	}
	if command == "growth" || command == "report" {
		f.StringVar(&axes, "axes", strings.Join(axisNames(), ","), "comma-separated: "+strings.Join(axisNames(), ", "))
		for _, a := range growthAxes {
			lists[a.name] = f.String(a.name, a.sizes, a.about)
		}
		f.IntVar(&o.samples, "samples", 20_000, "messages of one measurement of growth")
	}
	return func() error {
		o.strategies = split(chosen)
		switch {
		case command == "suite":
			o.strategies = suiteStrategies(o.engine)
		case chosen == "":
			o.strategies = strategiesOf(o.engine)
		}
		o.axes, o.steps = split(axes), split(steps)
		if ordered {
			o.slots, o.keys = manySlots, manyKeys
		}
		o.growth = map[string][]int{}
		var errs []error
		for _, text := range split(crews) {
			c, err := parseCrew(text)
			o.crews, errs = append(o.crews, c), append(errs, err)
		}
		for _, text := range split(loads) {
			load, err := strconv.ParseFloat(text, 64)
			if err != nil || load <= 0 || load > 1 {
				errs = append(errs, fmt.Errorf("-loads: %q is not a part of 1", text))
			}
			o.loads = append(o.loads, load)
		}
		for name, list := range lists {
			for _, text := range split(*list) {
				size, err := strconv.Atoi(text)
				if err != nil || size < 0 {
					errs = append(errs, fmt.Errorf("-%s: %q is not a number of 0 or more", name, text))
				}
				o.growth[name] = append(o.growth[name], size)
			}
		}
		return errors.Join(errs...)
	}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

func (o options) check(rest []string) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(rest) > 0 {
		fail("unexpected argument %q: everything but the command is a flag", rest[0])
	}
	among := func(name, value string, known []string) bool {
		if slices.Contains(known, value) {
			return true
		}
		fail("%s %q is unknown; known: %s", name, value, strings.Join(known, ", "))
		return false
	}
	within := func(name string, value, low, high int) {
		if value < low || value > high {
			fail("%s is %d: must be from %d to %d", name, value, low, high)
		}
	}
	known := among("-engine", o.engine, engineNames())
	if known {
		if err := findEngine(o.engine).check(o); err != nil {
			fail("%w", err)
		}
	}
	for i, s := range o.strategies {
		if !among("-strategies", s, strategyNames()) {
			continue
		}
		if slices.Contains(o.strategies[:i], s) {
			fail("-strategies names %s twice", s)
		}
		if known && !slices.Contains(strategiesOf(o.engine), s) {
			fail("-strategies: %s is not for %s, which has %s", s, o.engine, strings.Join(strategiesOf(o.engine), ", "))
		}
	}
	for _, axis := range o.axes {
		among("-axes", axis, axisNames())
	}
	among("-send", o.send, []string{sendChannel, sendBatch})
	among("-format", o.format, []string{formatTable, formatJSON})
	within("-body", o.body, 0, maxBody)
	within("-batch", o.batch, 1, maxBatch)
	within("-rounds", o.rounds, 1, 1000)
	if o.n != 0 || o.single != 0 || o.articleBatch != 0 || len(o.crews) > 0 {
		within("-n", o.n, 1, 10_000_000)
	}
	if o.single != 0 || o.articleBatch != 0 {
		within("-single-n", o.single, 1, 10_000_000)
		within("-article-batch", o.articleBatch, 1, 1000)
	}
	if o.suiteFor < 0 {
		fail("-for is %v: must not be negative", o.suiteFor)
	}
	if o.samples != 0 || len(o.axes) > 0 {
		within("-samples", o.samples, 1, 10_000_000)
		if o.db != "" {
			fail("-db holds one queue, and this compares several: set TMPDIR to choose the disk")
		}
	}
	for _, axis := range slices.Concat(growthAxes, orderAxes, []growthAxis{shardAxis}) {
		for _, size := range o.growth[axis.name] {
			within("-"+axis.name, size, axis.least, axis.most)
		}
	}
	if o.sustainedFor != 0 || o.every != 0 {
		within("-backlog", o.backlog, 1, 100_000_000)
		within("-consumers", o.consumers, 1, 100)
		within("-processes", o.processes, 1, 100)
		if o.every < 100*time.Millisecond || o.sustainedFor < o.every {
			fail("-every is %v and -for is %v: at least 100ms, and -for no less than -every", o.every, o.sustainedFor)
		}
		if o.hold && o.holdSend {
			fail("-hold and -hold-send: measure one after the other")
		}
		if o.holdSend && o.engine == sqliteEngine.name {
			fail("-hold-send: SQLite has one writer, and an open transaction that has sent stops all others")
		}
	}
	if o.idle {
		within("-crowd", o.crowd, 1, 200)
		within("-pairs", o.pairs, 1, 1000)
		for _, step := range o.steps {
			among("-steps", step, idleStepNames())
		}
		if o.log != "" && o.engine != postgresEngine.name {
			fail("-log is for -engine postgres")
		}
		if o.burst <= 0 || o.rest <= 0 {
			fail("-burst is %v and -rest is %v: must be positive", o.burst, o.rest)
		}
	}
	if o.order {
		for _, step := range o.steps {
			among("-steps", step, orderSteps)
		}
		within("-keys", o.keys, 1, 10_000_000)
		if o.rest <= 0 {
			fail("-rest is %v: must be positive", o.rest)
		}
	}
	if o.scale.queues != 0 {
		if err := o.checkScale(within); err != nil {
			fail("%w", err)
		}
	}
	if o.shards {
		within("-n", o.n, 1, 10_000_000)
		if err := o.checkShards(); err != nil {
			fail("%w", err)
		}
	}
	if o.rate < 0 || o.saturation < 0 || o.latencyFor < 0 {
		fail("-rate, -saturation and -for must not be negative")
	}
	return errors.Join(errs...)
}

// messages returns the number of messages for a strategy.
func (o options) messages(strategy string) int {
	if findStrategy(strategy).slow {
		return min(o.n, o.single)
	}
	return o.n
}

// newResult returns the fields that all measurements of a run share.
func newResult(o options, strategy string) measure.Result {
	r := measure.Here()
	r.Engine, r.Strategy, r.BodyBytes, r.Keys, r.Command = o.engine, strategy, o.body, o.keys, o.command
	return r
}
