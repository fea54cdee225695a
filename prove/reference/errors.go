package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// errorsPage returns the page of errors.
func errorsPage() (string, error) {
	var b strings.Builder
	b.WriteString(`# Errors

<!-- go run ./prove/reference writes this page. Change the comments of the errors instead. -->

Compare errors with ` + "`errors.Is`" + ` and ` + "`errors.As`" + `, for example:

` + "```go\n" + `var failed *chanq.OpError
if errors.As(err, &failed) && failed.Unknown {
	message.ID = receipt.ID // while it is in the queue, it is not stored twice
	_, err = producer.Send(ctx, message)
}
` + "```" + `

You find errors of the database in the [runbook](../operate/runbook.md#errors).

`)
	for _, dir := range []string{".", "pgnotify"} {
		err := eachDecl(dir, func(d ast.Decl) {
			general, is := d.(*ast.GenDecl)
			if !is || general.Tok != token.VAR {
				return
			}
			for _, s := range general.Specs {
				s := s.(*ast.ValueSpec)
				name, doc := s.Names[0].Name, s.Doc.Text()
				if !general.Lparen.IsValid() {
					doc = general.Doc.Text()
				}
				if !strings.HasPrefix(name, "Err") || doc == "" {
					continue
				}
				text := strings.TrimLeft(strings.TrimPrefix(strings.Join(strings.Fields(doc), " "), name), ": ")
				text = strings.TrimPrefix(text, "is the error of Config.Changed and Err ")
				if dir != "." {
					name = dir + "." + name
				}
				b.WriteString(wrapped(fmt.Sprintf("- **`%s`**: %s", name, coded(capital(beginning(text)))), "  "))
			}
		})
		if err != nil {
			return "", err
		}
	}
	for _, name := range []string{"OpError", "BatchError", "UnsentError"} {
		text, err := commentOf(".", name)
		if err != nil {
			return "", err
		}
		text = strings.TrimPrefix(text, name+" is ")
		b.WriteString(wrapped(fmt.Sprintf("- **`*%s`**: %s", name, coded(capital(sentence.FindString(text)))), "  "))
	}
	b.WriteString("\n## Causes of dead messages\n\nYou see them in `chanq causes`, and select by them with `--cause`.\n\n| `--cause` | why the message is dead |\n|---|---|\n")
	err := eachDecl(".", func(d ast.Decl) {
		general, is := d.(*ast.GenDecl)
		if !is || general.Tok != token.CONST {
			return
		}
		for _, s := range general.Specs {
			s := s.(*ast.ValueSpec)
			if name, is := strings.CutPrefix(s.Names[0].Name, "Cause"); is && s.Comment != nil {
				fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ToLower(name), coded(strings.TrimSpace(s.Comment.Text())))
			}
		}
	})
	return b.String(), err
}

// beginning returns the first sentence of a text, and the next ones while they are short together.
func beginning(text string) (out string) {
	for text != "" {
		s := sentence.FindString(text)
		if s == "" {
			s = text
		}
		if out != "" && len(strings.Fields(out+s)) > 18 {
			break
		}
		out, text = out+s, text[len(s):]
	}
	return strings.TrimSpace(out)
}

// commentOf returns the comment of a type, in one line.
func commentOf(dir, name string) (text string, err error) {
	err = eachDecl(dir, func(d ast.Decl) {
		if general, is := d.(*ast.GenDecl); is && general.Tok == token.TYPE {
			for _, s := range general.Specs {
				if s := s.(*ast.TypeSpec); s.Name.Name == name {
					text = strings.Join(strings.Fields(general.Doc.Text()), " ")
				}
			}
		}
	})
	if err == nil && text == "" {
		err = fmt.Errorf("%s has no comment", name)
	}
	return text, err
}
