// Package build has the functions that the dialects of sqlbatch share to build their statements and arguments.
package build

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq/sqlbatch"
)

// Milliseconds rounds up, so that a delay is never shortened.
func Milliseconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Times joins the texts for the columns of sqlbatch.Times, whose %[1]d is the number of the column, counted from first.
func Times(each string, first int) string {
	var all []string
	for i := range (sqlbatch.Times{}) {
		all = append(all, fmt.Sprintf(each, first+i))
	}
	return strings.Join(all, ", ")
}

// errorText replaces the characters that a history cannot have in a text.
var errorText = strings.NewReplacer("\x00", "\uFFFD", "\x1e", " ")

// Cut shortens an error text to MaxError bytes without splitting a character, and replaces what a history cannot have.
func Cut(s string) string {
	s = errorText.Replace(s)
	if len(s) <= sqlbatch.MaxError {
		return s
	}
	n := sqlbatch.MaxError
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// InOrder returns the rows in ascending order, so that every statement locks in the same order. It does not change
// the caller's slice.
func InOrder[T any](rows []T, compare func(a, b T) int) []T {
	if slices.IsSortedFunc(rows, compare) {
		return rows
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, compare)
	return rows
}

// CompareIDs compares ids by their bytes.
func CompareIDs(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) }

// Quote puts open and shut around a name and doubles shut inside it.
func Quote(open, name, shut string) string {
	return open + strings.ReplaceAll(name, shut, shut+shut) + shut
}

// TextWords are what differs per database in a sqlbatch.Dialect.Text.
type TextWords struct {
	Table                       func(name string) string // quoted, with its schema
	Create                      func(table string) string
	Now, Parameter, Text, Bytes string
}

// Text is sqlbatch.Dialect.Text.
func Text(n sqlbatch.Names, text string, w TextWords) string {
	live := "chanq_" + n.Queue
	text = NewWords("{live}", "{"+live+"}", "{dead}", "{"+live+"__dead}", "{done}", "{"+live+"__done}",
		"{now}", w.Now, "{text}", w.Text, "{bytes}", w.Bytes).Replace(text)
	return textWord.ReplaceAllStringFunc(text, func(word string) string {
		name, create := strings.CutPrefix(strings.Trim(word, "{}"), "create ")
		switch {
		case word[0] == '?':
			return w.Parameter + word[1:]
		case create:
			return w.Create(w.Table(name))
		}
		return w.Table(name)
	})
}

// LogTable is the Text that creates the log of changes, of all queues: see chanqadmin.Log. Its IDs are in the order of time, and the second
// key is for the changes of one queue. A change that has not ended has neither ended_at nor messages.
const LogTable = `{create chanq__log} (
  id       {text} NOT NULL PRIMARY KEY,
  queue    {text} NOT NULL,
  at       bigint NOT NULL,
  actor    {text} NOT NULL,
  what     {text} NOT NULL,
  which    {text} NOT NULL,
  reason   {text} NOT NULL,
  ended_at bigint NULL,
  messages bigint NULL,
  error    {text} NULL,
  UNIQUE (queue, id)
)`

var textWord = regexp.MustCompile(`\?[0-9]+|\{(create )?chanq_[a-z0-9_]+\}`)

// Scatter is an expression with the value of sqlbatch.Scatter in milliseconds, for one more than the number of lapses.
func Scatter(lapses string) string {
	var b strings.Builder
	b.WriteString("CASE")
	most := sqlbatch.Scatter(math.MaxInt)
	n := 1
	for ; sqlbatch.Scatter(n+1) < most; n++ {
		fmt.Fprintf(&b, " WHEN %s = %d THEN %d", lapses, n, Milliseconds(sqlbatch.Scatter(n+1)))
	}
	fmt.Fprintf(&b, " ELSE %d END", Milliseconds(most))
	return b.String()
}

// Lane numbers the priorities in the order of claims and peeks: from 0 on.
func Lane(priority int) int { return sqlbatch.PriorityUrgent - priority }

// Peek returns where a peek of a state begins: after this lane, time and id. The place before the first live
// message is in a separate lane. The place before the first ended message is the end of time, since the latest
// messages are first.
func Peek(s sqlbatch.State, after *sqlbatch.Place, end int64) (lane int, at int64, id [16]byte) {
	switch {
	case after != nil:
		return Lane(int(after.Priority)), after.At, after.ID
	case s.Live():
		return -1, 0, id
	}
	return 0, end, [16]byte(bytes.Repeat([]byte{0xFF}, 16))
}

// Group returns where Causes begins: after the group, or before all groups. none means no fingerprint.
func Group(after sqlbatch.Group, none int64) (cause, fingerprint int64) {
	switch {
	case after == sqlbatch.Group{}:
		return -1, none
	case after.Fingerprint == 0:
		return int64(after.Cause), none
	}
	return int64(after.Cause), after.Fingerprint
}

// ShardValues returns the values of a queue's columns shard, shards and shard_set.
func ShardValues(n sqlbatch.Names) string {
	set := ""
	if n.Shards > 0 {
		set = fmt.Sprintf("%x", n.ShardSet)
	}
	return fmt.Sprintf("%d, %d, '%s'", n.Shard, n.Shards, set)
}

// KindAndSlots returns the values of a queue's columns kind and slots.
func KindAndSlots(n sqlbatch.Names) string {
	kind := 1
	if n.Slots > 0 {
		kind = 2
	}
	return fmt.Sprintf("%d, %d", kind, n.Slots)
}

// policyColumns are the columns of a policy, in the order of the statement Version. A column is a flag, or an integer of 32 or 64 bits.
var policyColumns = []struct {
	name  string
	bits  int // 1, 32 or 64
	value func(p sqlbatch.Policy) int64
}{
	{"holds", 1, func(p sqlbatch.Policy) int64 { return flag(p.Holds) }},
	{"max_keys", 32, func(p sqlbatch.Policy) int64 { return int64(p.MaxKeys) }},
	{"max_attempts", 32, func(p sqlbatch.Policy) int64 { return int64(p.MaxAttempts) }},
	{"max_body", 32, func(p sqlbatch.Policy) int64 { return int64(p.MaxBody) }},
	{"retain_ms", 64, func(p sqlbatch.Policy) int64 { return Milliseconds(p.Retain) }},
	{"retain_dead_ms", 64, func(p sqlbatch.Policy) int64 { return Milliseconds(p.RetainDead) }},
}

func flag(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// PolicyArgs returns the values of the columns of a policy.
func PolicyArgs(p sqlbatch.Policy) (args []any) {
	if p == (sqlbatch.Policy{}) {
		p = sqlbatch.DefaultPolicy
	}
	for _, c := range policyColumns {
		args = append(args, c.value(p))
	}
	return args
}

// Policy is how an engine writes the columns of a policy: of a flag, an integer of 32 and one of 64 bits the type, the
// argument, and what a query reads if that is not the column itself. %c is the name of the column, and %d its number from 1 on.
type Policy struct{ Types, Args, Reads [3]string }

// Each joins a text for each column, in which %t, %a and %r are its type, argument and what is read.
func (p Policy) Each(text, separator string) string {
	var texts []string
	for i, c := range policyColumns {
		all := strings.NewReplacer("%t", p.Types[c.bits/32], "%a", p.Args[c.bits/32], "%r", cmp.Or(p.Reads[c.bits/32], "%c")).Replace(text)
		texts = append(texts, strings.NewReplacer("%c", c.name, "%d", strconv.Itoa(i+1)).Replace(all))
	}
	return strings.Join(texts, separator)
}

// Words are what the texts of all engines have in braces about the policy of a queue.
func (p Policy) Words(n sqlbatch.Names) []string {
	var values []string
	for _, value := range PolicyArgs(n.Policy) {
		values = append(values, fmt.Sprint(value))
	}
	return []string{
		"{policy values}", strings.Join(values, ", "), "{policy columns}", p.Each("%c", ", "), "{policy read}", p.Each("%r", ", "),
		"{policy types}", p.Each("%c %t NOT NULL", ", "), "{policy args}", p.Each("%a", ", "),
		"{policy set}", p.Each("%c = %a", ", "), "{policy excluded}", p.Each("%c = excluded.%c", ", "),
		"{after policy}", strconv.Itoa(len(policyColumns) + 1),
	}
}

// Upto returns the bound of a Place or a Window of an ordered queue: if there is none, the greatest seq.
func Upto(seq int64) int64 {
	if seq == 0 {
		return math.MaxInt64
	}
	return seq
}

// Fingerprint returns the fingerprint of a filter, or nil.
func Fingerprint(f sqlbatch.Filter) any {
	if f.Fingerprint == nil {
		return nil
	}
	return *f.Fingerprint
}

// UptoOf returns the bound of a Place.
func UptoOf(p *sqlbatch.Place) int64 {
	if p == nil {
		return math.MaxInt64
	}
	return Upto(p.Upto)
}

// Words has the replacements of the names in braces of a template.
type Words map[string]string

// NewWords takes pairs: a name in braces and its replacement.
func NewWords(pairs ...string) Words {
	w := make(Words, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		w[strings.Trim(pair[0], "{}")] = pair[1]
	}
	return w
}

// Replace fills in a template. Replacements are not expanded again, and names that w does not have stay. It is a
// strings.Replacer that looks only at braces: opening a queue fills in about 300 templates.
func (w Words) Replace(template string) string {
	b := make([]byte, 0, 2*len(template)) // the result has no spare capacity, because it is kept as long as the queue
	for {
		before, after, more := strings.Cut(template, "{")
		b = append(b, before...)
		if !more {
			return string(b)
		}
		name, rest, _ := strings.Cut(after, "}")
		if word, known := w[name]; known {
			b, template = append(b, word...), rest
		} else {
			b, template = append(b, '{'), after
		}
	}
}

// Over returns what rows of EnqueueOver do with duplicates, and their DebounceMax in milliseconds, nil for none.
func Over(rows []sqlbatch.Row) (does sqlbatch.OnDuplicate, most any) {
	for i := range rows {
		if does = max(does, rows[i].OnDuplicate); rows[i].OnDuplicate == sqlbatch.Debounce {
			most = Milliseconds(rows[i].DebounceMax)
		}
	}
	return does, most
}
