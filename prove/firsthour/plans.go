package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/sqlbatch"
)

// plans is part 2: it asks for the estimated plan of every text of sqlbatch/sqlserver/testdata, in tables that are empty and in tables with a
// backlog, and judges each (judge.go). Nothing of a text is run. A text is planned as a batch that declares its parameters as variables, so
// the server estimates without their values.
func plans(ctx context.Context, h *hour) error {
	for _, d := range h.databases {
		h.report.say("  %s", d.name)
		texts, err := h.texts(d.slots > 0)
		if err != nil {
			return err
		}
		if err := d.migrate(ctx); err != nil {
			return err
		}
		if err := h.plansOf(ctx, d, "empty", texts); err != nil {
			return err
		}
		if err := h.fill(ctx, d); err != nil {
			return err
		}
		if err := h.plansOf(ctx, d, "filled", texts); err != nil {
			return err
		}
	}
	return nil
}

// texts returns the texts of a queue, by their names: those of the folder ordered replace others of the same name. It leaves out what has no
// plan, since it only defines tables.
func (h *hour) texts(ordered bool) (map[string]string, error) {
	folder := filepath.Join(h.root, "sqlbatch", "sqlserver", "testdata")
	folders := []string{folder}
	if ordered {
		folders = append(folders, filepath.Join(folder, "ordered"))
	}
	texts := map[string]string{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.sql"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".sql")
			if defines.MatchString(name) || ordered && plainOnly.MatchString(name) {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			texts[name] = string(text)
		}
	}
	if len(texts) == 0 {
		return nil, errors.New("no texts in " + folder)
	}
	return texts, nil
}

var (
	defines = regexp.MustCompile(`^(migration|view|procedures|drop)-`)
	// plainOnly are the texts that only plain queues run: ordered ones lack their index.
	plainOnly = regexp.MustCompile(`^(claim|claim-past-readers|rescan|rescue|next-due|due-or-locked|watch)$`)
)

// plansOf judges the plans of all texts in one database.
func (h *hour) plansOf(ctx context.Context, d *database, state string, texts map[string]string) error {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SHOWPLAN_XML ON"); err != nil {
		return unseen{err}
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "SET SHOWPLAN_XML OFF") }()
	table := [][]string{{"text", "kB", "ms", "grant kB", "spools, and what an operator's statement may have"}}
	good := 0
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		what := fmt.Sprintf("%s, %s: %s", d.suffix, state, name)
		plan, err := showplan(ctx, conn, declared(texts[name]))
		var refused mssql.Error
		if errors.As(err, &refused) {
			h.report.wrong(what, "a plan", fmt.Sprintf("error %d: %s", refused.Number, refused.Message))
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := h.keep(d, state, name, plan); err != nil {
			return err
		}
		j, err := judge(name, plan)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		for _, f := range j.refused {
			h.report.wrong(what, "no such operator", f)
		}
		if len(j.refused) == 0 {
			good++
		}
		table = append(table, []string{name, fmt.Sprint(j.sizeKB), fmt.Sprint(j.compileMS), fmt.Sprint(j.grantKB), strings.Join(append(j.spools, j.accepted...), "; ")})
	}
	h.report.compare(fmt.Sprintf("%s, %s: texts with a plan as expected", d.suffix, state), fmt.Sprint(len(texts)), fmt.Sprint(good))
	h.report.attach(fmt.Sprintf("Plans in %s, %s", d.suffix, state), fmt.Sprintf("%d of %d plans are right; section plans has the others. kB is the size of the cached plan, "+
		"ms the time to compile it, grant the memory that it asks for. A spool copies rows: up to %d B per row are right.", good, len(texts), largestSpool), columns(table))
	return nil
}

// keep writes a plan to the folder of -plans.
func (h *hour) keep(d *database, state, name, plan string) error {
	if h.options.plans == "" {
		return nil
	}
	folder := filepath.Join(h.options.plans, d.suffix+"-"+state)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".sqlplan"), []byte(plan), 0o644)
}

var parameters = regexp.MustCompile(`\A-- (@[^\n]*)\n`)

// declared turns the declaration of sp_executesql, which is the first line of a text, into variables.
func declared(text string) string {
	m := parameters.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	return "DECLARE " + m[1] + ";\n" + strings.TrimPrefix(text, m[0])
}

func showplan(ctx context.Context, conn *sql.Conn, text string) (plan string, err error) {
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var part string
		if err := rows.Scan(&part); err != nil {
			return "", err
		}
		plan += part
	}
	return plan, rows.Err()
}

// queue is the queue of the parts plans, locks and behaviours, after which the texts name their tables.
const queue = "orders"

func (d *database) names() sqlbatch.Names { return sqlbatch.Names{Queue: queue, Slots: d.slots} }

func (d *database) config() chanq.Config {
	cfg := chanq.Config{Dialect: chanq.DialectSQLServer}
	if d.slots > 0 {
		cfg.Spec = chanq.Spec{Kind: chanq.KindOrdered, Slots: d.slots}
	}
	return cfg
}

// migrate creates the queue, if it does not exist.
func (d *database) migrate(ctx context.Context) error {
	return chanq.Migrate(ctx, d.db, queue, d.config())
}

// fill stores messages, some with a key, and lets the server learn how many there are.
func (h *hour) fill(ctx context.Context, d *database) error {
	q, err := chanq.Open[[]byte](ctx, d.db, queue, d.config())
	if err != nil {
		return err
	}
	p, err := q.Producer(ctx, chanq.ProducerConfig{})
	if err != nil {
		return err
	}
	body := make([]byte, 200)
	for i := range h.messages {
		m := chanq.Msg(body)
		if d.slots > 0 {
			m.Key = fmt.Sprintf("key %d", i%1000)
		} else if i%10 == 0 {
			m.DedupKey = fmt.Sprintf("key %d", i)
		}
		select {
		case p.C() <- m:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), p.Close(context.WithoutCancel(ctx)))
		}
	}
	if err := p.Close(ctx); err != nil {
		return err
	}
	_, err = d.db.ExecContext(ctx, "EXEC sp_updatestats")
	return err
}
