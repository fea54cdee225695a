package engine

import (
	"strings"

	"github.com/sqlc-dev/teesql/ast"
)

func (c *compiler) like(e *ast.BooleanLikeExpression) (*cond, error) {
	list := []ast.ScalarExpression{e.FirstExpression, e.SecondExpression}
	if e.EscapeExpression != nil {
		list = append(list, e.EscapeExpression)
	}
	args, err := c.scalars(list)
	if err != nil {
		return nil, err
	}
	for i := range args {
		args[i] = cast(args[i], typeText, 0)
	}
	all := derive(typeText, args, nil)
	fold := !all.collated || all.coll == caseInsensitive
	out := &cond{refs: all.refs, cols: all.cols, eval: func(x *exec) (tri, error) {
		var text [3]string
		for i, a := range args {
			v, err := a.eval(x)
			if err != nil || v == nil {
				return isUnknown, err
			}
			text[i] = v.(string)
		}
		if fold {
			text[0], text[1] = strings.ToLower(text[0]), strings.ToLower(text[1])
		}
		return triOf(likeMatch([]rune(text[0]), []rune(text[1]), []rune(text[2]))), nil
	}}
	if e.NotDefined {
		return not(out), nil
	}
	return out, nil
}

// likeMatch matches s with the wildcards %, _, [a-z] and [^a-z].
func likeMatch(s, p, escape []rune) bool {
	for len(p) > 0 {
		switch {
		case len(escape) == 1 && p[0] == escape[0] && len(p) > 1:
			if len(s) == 0 || s[0] != p[1] {
				return false
			}
			s, p = s[1:], p[2:]
		case p[0] == '%':
			for i := 0; i <= len(s); i++ {
				if likeMatch(s[i:], p[1:], escape) {
					return true
				}
			}
			return false
		case p[0] == '_':
			if len(s) == 0 {
				return false
			}
			s, p = s[1:], p[1:]
		case p[0] == '[':
			end := strings.IndexRune(string(p[1:]), ']')
			if end < 0 || len(s) == 0 || !inSet(s[0], []rune(string(p[1:])[:end])) {
				return false
			}
			s, p = s[1:], p[len([]rune(string(p[1:])[:end]))+2:]
		default:
			if len(s) == 0 || s[0] != p[0] {
				return false
			}
			s, p = s[1:], p[1:]
		}
	}
	return len(s) == 0
}

func inSet(r rune, set []rune) bool {
	invert := len(set) > 0 && set[0] == '^'
	if invert {
		set = set[1:]
	}
	found := false
	for i := 0; i < len(set); i++ {
		if i+2 < len(set) && set[i+1] == '-' {
			found = found || r >= set[i] && r <= set[i+2]
			i += 2
			continue
		}
		found = found || r == set[i]
	}
	return found != invert
}
