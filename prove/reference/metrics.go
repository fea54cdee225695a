package main

import (
	"fmt"
	"go/ast"
	"strconv"
	"strings"
)

// metrics returns the page of metrics.
func metrics() (string, error) {
	var b strings.Builder
	b.WriteString(`# Metrics

<!-- go run ./prove/reference writes this page. Change the descriptions in chanqprom instead. -->

Package ` + "`chanqprom`" + ` exports these metrics to Prometheus ([monitoring](../operate/monitoring.md)). For example, the rate
of failures of your queue:

` + "```text\n" + `sum by (queue) (rate(chanq_handler_errors_total[10m])) / sum by (queue) (rate(chanq_delivered_messages_total[10m]))
` + "```" + `

All have the label ` + "`queue`" + `, such as ` + "`orders`" + `, or ` + "`orders/east`" + ` for a shard. The last five come from ` + "`Watch`" + `, and need one
program of many; the others count what your program does.

| metric | type, labels | meaning |
|---|---|---|
`)
	err := eachDecl("chanqprom", func(d ast.Decl) {
		ast.Inspect(d, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is {
				if m, is := metricOf(call); is {
					kind := strings.Join(append([]string{m.kind}, m.labels...), ", ")
					fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, kind, strings.TrimSuffix(m.help, "."))
				}
			}
			return true
		})
	})
	b.WriteString("\n[otelchanq](../../otelchanq) exports the same figures to OpenTelemetry, under its own names, for example\n`chanq.settled.messages`. Its package comment lists them.\n")
	return b.String(), err
}

type metric struct {
	name, kind, help string
	labels           []string
}

// metricOf returns the metric that a call creates.
func metricOf(call *ast.CallExpr) (m metric, is bool) {
	texts := literals(call)
	if len(texts) < 2 || !strings.HasPrefix(texts[0], "chanq_") {
		return m, false
	}
	m = metric{name: texts[0], help: texts[1], labels: texts[2:]}
	switch of := call.Fun.(type) {
	case *ast.Ident:
		m.kind = of.Name
	case *ast.SelectorExpr:
		m.kind = map[string]string{"NewHistogramVec": "histogram", "NewDesc": "gauge"}[of.Sel.Name]
	}
	rest := m.labels[:0]
	for _, label := range m.labels {
		if label != "queue" {
			rest = append(rest, "`"+label+"`")
		}
	}
	m.labels = rest
	return m, m.kind != ""
}

// literals returns the texts in the arguments of a call, in their order.
func literals(call *ast.CallExpr) (texts []string) {
	for _, arg := range call.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			if lit, is := n.(*ast.BasicLit); is {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					texts = append(texts, text)
				}
			}
			return true
		})
	}
	return texts
}
