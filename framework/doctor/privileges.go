package doctor

import (
	"cmp"
	"context"
	"strings"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

// privileged is an Examiner that finds missing privileges. Missing returns GRANT statements.
type privileged interface {
	Missing(ctx context.Context, d postgres.Duty) ([]string, error)
}

// mysqlPrivileges adapts the Examiner of MySQL, whose duties have the same names.
type mysqlPrivileges struct{ *mysql.Examiner }

func (e mysqlPrivileges) Missing(ctx context.Context, d postgres.Duty) ([]string, error) {
	return e.Examiner.Missing(ctx, string(d))
}

func checkPrivileges(ctx context.Context, x *examination) (verdict, error) {
	server := privileged(x.pg)
	if x.my != nil {
		server = mysqlPrivileges{x.my}
	}
	if x.schemas().Schema(ctx) != nil && x.openErr != nil && !postgres.IsDenied(x.openErr) && !mysql.IsDenied(x.openErr) {
		return skip("the tables do not have this program's version: see schema", ""), nil
	}
	duties := []postgres.Duty{cmp.Or(x.Duty, postgres.Forwarder)}
	if x.Duty == "" && len(x.Schedules) > 0 {
		duties = append(duties, postgres.Scheduler)
	}
	return lacking(ctx, server, x.Duty != "", duties...)
}

func checkCreators(ctx context.Context, x *examination) (verdict, error) {
	schema, roles, err := x.pg.Creators(ctx)
	if err != nil {
		return verdict{}, err
	}
	if len(roles) == 0 {
		return ok("only owners may create functions in the schema %s", schema), nil
	}
	var fixes []string
	for _, role := range roles {
		fixes = append(fixes, "REVOKE CREATE ON SCHEMA "+schema+" FROM "+role+";")
	}
	return warn(strings.Join(fixes, "\n"), "%s may create functions in the schema %s: one of the name of a function of the outbox may run in its place, with the rights of the caller", some(roles), schema), nil
}

// lacking checks the privileges for duties. sure means that the role must have them: without it,
// a missing privilege does not fail the check.
func lacking(ctx context.Context, server privileged, sure bool, duties ...postgres.Duty) (verdict, error) {
	var missing, names []string
	for _, d := range duties {
		lacks, err := server.Missing(ctx, d)
		if err != nil {
			return verdict{}, err
		}
		missing, names = append(missing, lacks...), append(names, string(d))
	}
	list, fix := strings.Join(names, " and "), strings.Join(missing, "\n")
	switch {
	case len(missing) == 0:
		return ok("the role has the privileges of a %s", list), nil
	case sure:
		return fail(fix, "the role lacks %s of a %s", count(len(missing), "privilege"), list), nil
	}
	return skip("the role does not have the privileges of a "+list, fix), nil
}
