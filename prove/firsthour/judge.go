package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// largestSpool is the most bytes of a row that a statement may copy into a worktable: an ID and some numbers, and no body.
const largestSpool = 200

// The kinds of what a plan has that the statements of a queue should not have.
const (
	scan     = "scan"
	sorts    = "sort"
	spool    = "spool"
	join     = "join"     // hash or merge: reads both sides whole
	prefetch = "prefetch" // keeps the locks of the outer side of a join
	grant    = "memory grant"
)

// smallTables are read whole: each has a row for each queue, process, slot or minute.
var smallTables = regexp.MustCompile(`^(chanq__(queues|consumers|slots|samples)|@.*|#.*|)$`)

// accepted has what the plans of some texts may have, by the beginnings of their names, and why.
var accepted = []struct {
	name    *regexp.Regexp
	kinds   []string
	because string
}{
	{regexp.MustCompile(`^(browse|peek|walk|purge|redrive|trim|bodies|get$|cancel$|discard$|causes)`), []string{sorts, grant, spool, join}, "an operator's statement, of one page"},
	{regexp.MustCompile(`^(queues|consumers|samples?|counted|thin|stats|slot-stats|slots|held-keys|problems|missing|version|configure|pause|resume|record|join|leave)$`), []string{sorts, grant, spool, join}, "once per process, or by operators"},
}

// judgement is what a plan has.
type judgement struct {
	refused   []string // what it must not have
	accepted  []string // what it may have, by the table accepted
	spools    []string
	sizeKB    int
	compileMS int
	grantKB   int
}

// element is an element of a plan: http://schemas.microsoft.com/sqlserver/2004/07/showplan.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
}

func (e *element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (e *element) number(name string) int {
	n, _ := strconv.Atoi(e.attr(name)) // 0 if there is no such attribute
	return n
}

// is reports whether an attribute is true: servers write 1 or true.
func (e *element) is(name string) bool { return e.attr(name) == "1" || e.attr(name) == "true" }

// judge judges the plan of a text.
func judge(name, plan string) (*judgement, error) {
	var root element
	d := xml.NewDecoder(strings.NewReader(plan))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // its declaration might say UTF-16
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("the plan cannot be read: %w", err)
	}
	j := &judgement{}
	root.walk(func(e *element) { j.element(name, e) })
	if !root.has("QueryPlan") && !root.has("StmtSimple") && !root.has("StmtCond") {
		return nil, fmt.Errorf("a plan without statements: <%s>", root.XMLName.Local)
	}
	return j, nil
}

func (e *element) walk(visit func(*element)) {
	visit(e)
	for i := range e.Children {
		e.Children[i].walk(visit)
	}
}

func (e *element) has(name string) (found bool) {
	e.walk(func(e *element) { found = found || e.XMLName.Local == name })
	return found
}

// table returns the table that an operator itself reads.
func (e *element) table() string {
	for i := range e.Children {
		c := &e.Children[i]
		if c.XMLName.Local == "RelOp" {
			continue
		}
		if c.XMLName.Local == "Object" {
			return strings.Trim(c.attr("Table"), "[]")
		}
		if t := c.table(); t != "" {
			return t
		}
	}
	return ""
}

// element judges one element.
func (j *judgement) element(name string, e *element) {
	switch e.XMLName.Local {
	case "RelOp":
		j.operator(name, e)
	case "NestedLoops":
		if e.is("WithOrderedPrefetch") || e.is("WithUnorderedPrefetch") {
			j.note(name, prefetch, "a nested loops join prefetches")
		}
		if e.is("Optimized") {
			j.note(name, sorts, "a nested loops join may sort its outer side")
		}
	case "Update", "SimpleUpdate", "CreateIndex":
		if e.is("DMLRequestSort") {
			j.note(name, sorts, "the change wants its rows sorted")
		}
	case "MemoryGrantInfo":
		kb := max(e.number("SerialRequiredMemory"), e.number("RequiredMemory"))
		j.grantKB += kb
		if kb > 0 {
			j.note(name, grant, fmt.Sprintf("asks for %d kB", kb))
		}
	case "QueryPlan":
		j.sizeKB += e.number("CachedPlanSize")
		j.compileMS += e.number("CompileTime")
	case "MissingIndexGroup":
		j.note(name, "missing index", "an index would help by "+e.attr("Impact")+" %")
	case "Warnings":
		if e.is("NoJoinPredicate") {
			j.note(name, join, "a join without a predicate")
		}
	}
}

// operator judges one operator of a plan.
func (j *judgement) operator(name string, e *element) {
	op := e.attr("PhysicalOp")
	switch {
	case op == "Constant Scan", op == "Inserted Scan", op == "Deleted Scan":
	case strings.HasSuffix(op, "Scan"):
		if !smallTables.MatchString(e.table()) {
			j.note(name, scan, op+" of "+e.table())
		}
	case op == "Sort":
		j.note(name, sorts, e.attr("LogicalOp"))
	case strings.HasSuffix(op, "Spool"):
		size := e.number("AvgRowSize")
		text := fmt.Sprintf("%s of rows of %d B", e.attr("LogicalOp"), size)
		j.spools = append(j.spools, text)
		if size > largestSpool {
			j.note(name, spool, text)
		}
	case op == "Hash Match", op == "Merge Join", op == "Parallelism":
		j.note(name, join, op)
	}
}

// note adds what was found, to what is refused unless the table accepted has it.
func (j *judgement) note(name, kind, text string) {
	list := &j.refused
	for _, a := range accepted {
		if a.name.MatchString(name) && slices.Contains(a.kinds, kind) {
			list = &j.accepted
		}
	}
	if text = kind + ": " + text; !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}
