package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqfindings"
)

func (a *app) topCommand() *cobra.Command {
	var every time.Duration
	var n int
	var limits chanqfindings.Limits
	cmd := &cobra.Command{
		Use:   "top [QUEUE...]",
		Short: "Show the figures of queues every second",
		Long: `Shows the figures of chanq stats every second, until you interrupt it. A
terminal replaces them. With -o json each poll prints an array on one line.

IN/S and OUT/S are messages that were sent and acked, over the last minute, by programs that had the
queue open for ten seconds at least, with a producer or a consumer (see chanqadmin.Queue.History). WAIT
is how long messages had been due when they were delivered, and HANDLER how long calls of their handlers
took. With 12ms/250ms, half of the last minute's took 12 ms or less, and 95 of 100 took 250 ms or less
(the true time is at least half of that). LAST HOUR draws the most that was ready in each minute of it,
the latest on the right. All this is of the queue's history, which is read once in ten seconds; - is
where there is none. CONSUMERS is the number of consumers, of all processes; chanq consumers lists them,
and so does top of one queue.

STATE, and the lines above the table, are findings: chanq doctor has their remedies.

A terminal that is narrow gets fewer columns, and one that is low fewer queues: no line is wrapped.

A queue over several databases has a line per shard, for example 0/3; --shard-db adds databases.`,
		Example: `  chanq top --db jobs.db
  chanq top --db jobs.db --every 10s mail`,
		RunE: func(cmd *cobra.Command, queues []string) error {
			if every < 10*time.Millisecond {
				return usage("--every is %v: must be 10ms or more", every)
			}
			if n < 0 {
				return usage("-n is %d: must be 0 (until interrupted) or more", n)
			}
			if err := limits.Check(); err != nil {
				return usage("--stuck, --late: %w", err)
			}
			return a.top(cmd.Context(), queues, every, n, limits)
		},
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "time between two polls")
	cmd.Flags().IntVarP(&n, "number", "n", 0, "how many polls (default until interrupted)")
	limitFlags(cmd, &limits)
	return a.shardsFlag(cmd)
}

// top continues while the database is unavailable, because it is needed then.
func (a *app) top(ctx context.Context, queues []string, every time.Duration, n int, limits chanqfindings.Limits) error {
	c, err := a.connectAll(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	trends := map[string]trend{}
	for i := 1; ; i++ {
		list, err := a.topLines(ctx, c, queues, trends, limits)
		if i == 1 && !c.partly(len(list), err) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := a.showTop(c, list, err); err != nil {
			return err
		}
		if i == n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// topLine is the data of top for a queue.
type topLine struct {
	queueStats
	trend
	consumers []chanqadmin.ConsumerInfo
	state     string
	findings  []chanqfindings.Finding
}

// topLines reads the named queues, or all, and sorts them: those in trouble first. trends are the known histories. A queue that cannot be
// read has only its findings.
func (a *app) topLines(ctx context.Context, c *connection, queues []string, trends map[string]trend, limits chanqfindings.Limits) ([]topLine, error) {
	var list []topLine
	errs := []error{c.missed}
	for _, db := range c.all() {
		found, err := a.topOf(ctx, db, queues, trends, limits)
		if err != nil && len(c.others) > 0 {
			err = fmt.Errorf("%s: %w", db.name, err)
		}
		list, errs = append(list, found...), append(errs, err)
	}
	slices.SortStableFunc(list, func(a, b topLine) int { return cmp.Compare(a.trouble(), b.trouble()) })
	return list, errors.Join(errs...)
}

func (a *app) topOf(ctx context.Context, c *connection, names []string, trends map[string]trend, limits chanqfindings.Limits) (list []topLine, err error) {
	if len(names) == 0 {
		listing, cancel := context.WithTimeout(ctx, allTime)
		defer cancel()
		if names, err = a.queueNames(listing, c); err != nil {
			return nil, err
		}
	}
	var errs []error
	examined := chanqfindings.Examine(ctx, c.DB, a.queueConfig(c), names)
	reading, cancel := context.WithTimeout(ctx, queueTime) // the histories of all queues
	defer cancel()
	for _, q := range examined {
		found := chanqfindings.Of(q.Figures, limits, time.Now())
		if q.Err != nil && !slices.ContainsFunc(found, func(f chanqfindings.Finding) bool { return f.Kind == chanqfindings.Locked }) {
			err := q.Err
			if !q.At.IsZero() && errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%s: no answer within %v: its tables may be locked; chanq doctor %s says by whom (%w)", q.Queue, chanqfindings.Patience, q.Queue, err)
			}
			errs = append(errs, err)
			continue
		}
		line := topLine{queueStats{name: q.Queue, Stats: q.Stats}, trend{}, q.Consumers, chanqfindings.State(q.Figures, found), found}
		if q.Admin != nil {
			_, mark := q.Admin.Opened()
			line.shard = look{mark: mark}.shard()
		}
		if q.Err == nil {
			key := c.name + " " + q.Queue
			t := trends[key]
			if reading.Err() == nil { // otherwise the next poll reads it
				found := <-within(reading, func(ctx context.Context) (trend, error) { return t.look(ctx, q.Admin) })
				if found.err == nil {
					t = found.value
				} else {
					errs = append(errs, late(reading, q.Queue, found.err))
				}
			}
			trends[key], line.trend, line.queueStats.times = t, t, t.times
		}
		list = append(list, line)
	}
	return list, errors.Join(errs...)
}

// trouble is the place of the worst finding among all kinds, or a greater number.
func (l topLine) trouble() int {
	for _, f := range l.findings {
		return slices.Index(chanqfindings.Kinds, f.Kind)
	}
	return len(chanqfindings.Kinds)
}

// mostFindings is how many findings top shows.
const mostFindings = 5

// topFindings writes a line for each of the worst findings, and returns how many.
func (a *app) topFindings(list []topLine, width int) int {
	var found []chanqfindings.Finding
	for _, l := range list {
		found = append(found, l.findings...)
	}
	found = chanqfindings.Worst(found)
	marks := map[chanqfindings.Severity][2]string{chanqfindings.Failure: {"X", red}, chanqfindings.Warning: {"!", yellow}, chanqfindings.Notice: {"-", ""}}
	line := func(colour, text string) {
		if width > 0 {
			text = brief(text, width)
		}
		_ = a.line(colour, text) // the table after it returns the error
	}
	for i, f := range found {
		if i == mostFindings {
			line("", fmt.Sprintf("  %d more: chanq doctor --quiet", len(found)-i))
			return i + 1
		}
		if f.Queue != "" {
			f.Text = f.Queue + ": " + f.Text
		}
		line(marks[f.Severity][1], marks[f.Severity][0]+" "+visible(f.Text))
	}
	return len(found)
}

func (a *app) showTop(c *connection, list []topLine, failure error) error {
	if a.output == "json" {
		if failure != nil {
			a.fail(a.clean(failure), exitOK)
		}
		if !c.partly(len(list), failure) {
			return nil
		}
		return a.json(topJSON(list))
	}
	width, height := a.size()
	return a.redraw(func(a *app) error { return a.drawTop(c, list, failure, width, height) })
}

func (a *app) drawTop(c *connection, list []topLine, failure error, width, height int) error {
	heading := time.Now().Format(time.TimeOnly) + "  " + visible(names(c))
	if width > 0 {
		heading = brief(heading, width)
	}
	fmt.Fprintln(a.out, heading)
	if failure != nil {
		if _, err := fmt.Fprintf(a.out, "%s\n", a.clean(failure)); err != nil || !c.partly(len(list), failure) {
			return err
		}
	}
	height -= a.topFindings(list, width)
	if err := a.table(fit(topTable(list), width, height-2)); err != nil || len(list) != 1 || len(list[0].consumers) == 0 {
		return err
	}
	return a.topConsumers(list[0].consumers, width, height-5)
}

// topConsumers shows the consumers of the only queue that is shown.
func (a *app) topConsumers(consumers []chanqadmin.ConsumerInfo, width, lines int) error {
	rows := [][]string{{"CONSUMER", "HOST", "PROCESS", "FOR"}}
	for _, c := range consumers {
		since := time.Since(c.Since).Round(time.Second) // by this machine's clock
		rows = append(rows, []string{brief(c.Name, 40), brief(c.Host, 40), strconv.Itoa(c.Process), max(since, 0).String()})
	}
	fmt.Fprintln(a.out)
	return a.table(fit(rows, width, lines))
}

// names returns the names of all databases.
func names(c *connection) string {
	var list []string
	for _, db := range c.all() {
		list = append(list, db.name)
	}
	return strings.Join(list, ", ")
}

func topTable(list []topLine) [][]string {
	rows := [][]string{{"QUEUE", "READY", "SCHEDULED", "LEASED", "DEAD", "OLDEST", "IN/S", "OUT/S", "WAIT", "HANDLER", "LAST HOUR", "CONSUMERS", "STATE"}}
	for _, l := range list {
		s := statsRow(l.queueStats)
		in, out := "-", "-"
		if l.known {
			in, out = rate(l.in), rate(l.out)
		}
		rows = append(rows, []string{s[0], s[1], s[2], s[3], s[4], s[6], in, out, quantilesOf(l.trend.waits).String(), quantilesOf(l.trend.calls).String(), sparkline(l.depths), strconv.Itoa(len(l.consumers)), l.state})
	}
	return rows
}

type topJSONLine struct {
	statsLine
	In        *float64                `json:"sent_per_second"` // null: no history
	Out       *float64                `json:"acked_per_second"`
	Consumers []string                `json:"consumers"`
	State     string                  `json:"state"`
	Findings  []chanqfindings.Finding `json:"findings"`
}

func topJSON(list []topLine) []topJSONLine {
	lines := []topJSONLine{} // not null
	for _, l := range list {
		line := topJSONLine{statsLine: statsJSON([]queueStats{l.queueStats})[0], Consumers: []string{}, State: l.state, Findings: append([]chanqfindings.Finding{}, l.findings...)}
		if l.known {
			line.In, line.Out = &l.in, &l.out
		}
		for _, c := range l.consumers {
			line.Consumers = append(line.Consumers, c.Name)
		}
		lines = append(lines, line)
	}
	return lines
}
