package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// verdict is the result of the named test of a break.
type verdict string

const (
	caught       verdict = "caught"                   // an assertion of the test failed
	survived     verdict = "SURVIVED"                 // the test passed
	notCompiled  verdict = "DID NOT COMPILE"          // the break, or the test with it
	panicked     verdict = "PANICKED"                 // the process ended, by a panic or otherwise
	timedOut     verdict = "TIMED OUT"                // go test ended the process
	raced        verdict = "DATA RACE"                // the race detector reported
	skipped      verdict = "SKIPPED"                  // the test was skipped
	notFound     verdict = "NO SUCH TEST"             // nothing has that name
	noAssertion  verdict = "FAILED WITHOUT ASSERTION" // the test failed and reported no line of its own
	textGone     verdict = "TEXT IS GONE"             // the edit no longer applies
	textTwice    verdict = "TEXT OCCURS TWICE"        // the edit is ambiguous
	failsAnyway  verdict = "FAILS WITHOUT THE BREAK"  // the baseline
	commandError verdict = "GO TEST DID NOT RUN"
)

var (
	// endsProcess matches the beginning of an output line that no assertion writes: assertions are indented. rapid reports
	// a panic of a property with its own name.
	endsProcess = regexp.MustCompile(`(?m)^(panic:|fatal error:|runtime: |SIG[A-Z]+:|signal: |exit status [^1])|\[rapid\] panic`)
	timesOut    = regexp.MustCompile(`(?m)^(panic: test timed out after|\*\*\* Test killed)`)
	races       = regexp.MustCompile(`(?m)^WARNING: DATA RACE`)
	// asserts matches the line of a t.Error or t.Fatal, or of an assertion of testify. Package testing reports its own
	// findings, for example a data race, as lines of testing.go.
	asserts = regexp.MustCompile(`(?m)^\s+(\S+\.go):\d+: `)
)

// judge returns the verdict on a test from the output of go test -json, and the first line
// that explains it. test is the full name of a test, an example or a subtest.
func judge(output []byte, test string) (verdict, string) {
	var all, own strings.Builder
	action, ran, failedBuild := "", false, false
	for line := range bytes.Lines(output) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		failedBuild = failedBuild || e.Action == "build-fail"
		all.WriteString(e.Output)
		if e.Test != test && !strings.HasPrefix(e.Test, test+"/") {
			continue
		}
		own.WriteString(e.Output)
		if e.Test == test {
			ran = ran || e.Action == "run"
			if slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
				action = e.Action
			}
		}
	}
	switch text := all.String(); {
	case failedBuild:
		return notCompiled, firstMatch(text, regexp.MustCompile(`(?m)^\S+\.go:\d+.*$`))
	case timesOut.MatchString(text):
		return timedOut, firstMatch(text, timesOut)
	case races.MatchString(text):
		return raced, ""
	case endsProcess.MatchString(text):
		return panicked, firstMatch(text, endsProcess)
	case ran && action == "":
		return panicked, "the process ended before the test did"
	case action == "":
		return notFound, ""
	case action == "skip":
		return skipped, firstMatch(own.String(), asserts)
	case action == "pass":
		return survived, ""
	}
	for _, found := range asserts.FindAllStringSubmatch(own.String(), -1) {
		if found[1] != "testing.go" {
			return caught, ""
		}
	}
	return noAssertion, ""
}

// firstMatch returns the rest of the line where a pattern matches first.
func firstMatch(text string, pattern *regexp.Regexp) string {
	at := pattern.FindStringIndex(text)
	if at == nil {
		return ""
	}
	line, _, _ := strings.Cut(text[at[0]:], "\n")
	return strings.TrimSpace(line)
}
