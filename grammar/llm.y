/* Grammar of the model language.  Actions only call constructors; words and types are checked in sema.
 * Lists are left-recursive, so that the stack does not grow with their length. */

%require "3.8"
%define api.pure full
%define api.prefix {llm_}
%define api.location.type {struct place}
%define parse.error custom
%define parse.lac full
%locations
%param {yyscan_t scanner}
%parse-param {struct parse *parse}
/* conflicts are errors in the grammar, not in the input */
%expect 0

%code requires {
#include "compiler/model/parse.h"
#ifndef YY_TYPEDEF_YY_SCANNER_T
#define YY_TYPEDEF_YY_SCANNER_T
typedef void *yyscan_t;
#endif
#define YYLLOC_DEFAULT(current, rhs, n)                                                                      \
    do {                                                                                                     \
        (current).start = (n) ? YYRHSLOC(rhs, 1).start : YYRHSLOC(rhs, 0).end;                               \
        (current).end = (n) ? YYRHSLOC(rhs, n).end : YYRHSLOC(rhs, 0).end;                                   \
    } while (0)
}

%union {
    const char *text;
    enum relop relop;
    struct expr *expr;
    struct ast_arg_list args;
    struct ast_item_list items;
    struct stmt *stmt;
    struct ast_stmt_list stmts;
}

%code {
#include "llm.lex.h"

#define A (parse->arena)
#define AT(place) parse_span(parse, place)
#define CHECK_DEPTH(place, d)                                                                                \
    do {                                                                                                     \
        if (!parse_depth(parse, AT(place), d))                                                               \
            YYABORT;                                                                                         \
    } while (0)

static void llm_error(struct place *at, yyscan_t scanner, struct parse *parse, const char *message)
{
    (void)scanner;
    (void)message; /* only "memory exhausted" comes this way */
    parse_error_memory(parse, *at);
}
}

%token START_FILE "a file" START_STATEMENTS "statements"
%token NEWLINE "end of line"
%token SEMICOLON "';'"
%token LET "'let'"
%token <text> NAME "a name"
%token <text> CALL "a call"
%token <text> NUMBER "a number"
%token <text> STRING "a string"
%token LE "'<='" GE "'>='" EQ "'='" LT "'<'" GT "'>'"
%token PLUS "'+'" MINUS "'-'" TIMES "'*'" DIVIDE "'/'"
%token OPEN "'('" CLOSE "')'" OPEN_LIST "'['" CLOSE_LIST "']'" OPEN_BLOCK "'{'" CLOSE_BLOCK "'}'"
%token COMMA "','"
%token END 0 "end of file"

%type <expr> expr term factor
%type <args> args arg_list list
%type <items> items
%type <relop> relop
%type <stmts> stmts block
%type <stmt> stmt

%%

start: START_FILE file
     | START_STATEMENTS newlines stmts { parse->tree->stmts = $3.head; }

file: newlines NAME NUMBER { parse_header(parse, $2, @2, $3, @3); } end stmts { parse->tree->stmts = $6.head; }

newlines: %empty | newlines NEWLINE

end: NEWLINE | SEMICOLON | end NEWLINE | end SEMICOLON

stmts: %empty { $$ = (struct ast_stmt_list){0}; }
     | stmts stmt { $$ = ast_stmt_add($1, $2); }

stmt: LET NAME EQ expr end {
          $$ = ast_stmt(A, true, $2, AT(@2), ast_item_add(A, (struct ast_item_list){0}, RELOP_EQ, AT(@3), $4));
          CHECK_DEPTH(@2, $$->depth);
      }
    | NAME items end { $$ = ast_stmt(A, false, $1, AT(@1), $2); CHECK_DEPTH(@1, $$->depth); }
    | NAME items block end {
          $$ = ast_stmt(A, false, $1, AT(@1), $2);
          ast_stmt_block($$, $3, AT(((struct place){@3.start, @3.start + 1})), AT(((struct place){@3.end - 1, @3.end})));
          CHECK_DEPTH(@1, $$->depth);
      }
    | error end { $$ = NULL; yyerrok; }
    | error block end { $$ = NULL; yyerrok; }

block: OPEN_BLOCK newlines stmts CLOSE_BLOCK { $$ = $3; }

items: %empty { $$ = (struct ast_item_list){0}; }
     | items expr { $$ = ast_item_add(A, $1, RELOP_NONE, AT(@2), $2); }
     | items relop expr { $$ = ast_item_add(A, $1, $2, AT(@2), $3); }

relop: EQ { $$ = RELOP_EQ; }
     | LE { $$ = RELOP_LE; }
     | GE { $$ = RELOP_GE; }
     | LT { $$ = RELOP_LT; }
     | GT { $$ = RELOP_GT; }

expr: term
    | expr PLUS term { $$ = ast_binary(A, '+', $1, $3); CHECK_DEPTH(@$, $$->depth); }
    | expr MINUS term { $$ = ast_binary(A, '-', $1, $3); CHECK_DEPTH(@$, $$->depth); }

term: factor
    | term TIMES factor { $$ = ast_binary(A, '*', $1, $3); CHECK_DEPTH(@$, $$->depth); }
    | term DIVIDE factor { $$ = ast_binary(A, '/', $1, $3); CHECK_DEPTH(@$, $$->depth); }

factor: NUMBER { $$ = ast_leaf(A, EXPR_NUMBER, $1, AT(@1)); }
      | STRING { $$ = ast_leaf(A, EXPR_STRING, $1, AT(@1)); }
      | NAME { $$ = ast_leaf(A, EXPR_NAME, $1, AT(@1)); }
      | CALL args CLOSE { $$ = ast_call(A, $1, $2, AT(@$)); CHECK_DEPTH(@1, $$->depth); }
      | OPEN_LIST list CLOSE_LIST { $$ = ast_list(A, $2, AT(@$)); CHECK_DEPTH(@1, $$->depth); }
      | OPEN expr CLOSE { $$ = ast_group(A, $2, AT(@$)); CHECK_DEPTH(@1, $$->depth); }

args: %empty { $$ = (struct ast_arg_list){0}; }
    | arg_list
    | arg_list COMMA

arg_list: expr { $$ = ast_arg_add(A, (struct ast_arg_list){0}, NULL, AT(@1), $1); }
        | NAME EQ expr { $$ = ast_arg_add(A, (struct ast_arg_list){0}, $1, AT(@1), $3); }
        | arg_list COMMA expr { $$ = ast_arg_add(A, $1, NULL, AT(@3), $3); }
        | arg_list COMMA NAME EQ expr { $$ = ast_arg_add(A, $1, $3, AT(@3), $5); }

list: %empty { $$ = (struct ast_arg_list){0}; }
    | elements { $$ = $1; }
    | elements COMMA { $$ = $1; }

%nterm <args> elements;
elements: expr { $$ = ast_arg_add(A, (struct ast_arg_list){0}, NULL, AT(@1), $1); }
        | elements COMMA expr { $$ = ast_arg_add(A, $1, NULL, AT(@3), $3); }

%%

static int yyreport_syntax_error(const yypcontext_t *context, yyscan_t scanner, struct parse *parse)
{
    enum { EXPECTED_MAX = 10 };
    yysymbol_kind_t kinds[EXPECTED_MAX];
    const char *expected[EXPECTED_MAX];
    (void)scanner;
    int n = yypcontext_expected_tokens(context, kinds, EXPECTED_MAX);
    int known = 0;
    for (int i = 0; i < n; i++)
        if (kinds[i] < YYSYMBOL_PLUS || kinds[i] > YYSYMBOL_DIVIDE) /* that a number could go on is of no help */
            expected[known++] = yysymbol_name(kinds[i]);
    yysymbol_kind_t found = yypcontext_token(context);
    parse_error_token(parse, *yypcontext_location(context),
                      found == YYSYMBOL_YYEMPTY ? "nothing" : yysymbol_name(found), expected, known);
    return 0;
}
