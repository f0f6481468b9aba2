# llmc: all output goes to build/.  `make` builds, `make check` tests, `make demo` shows the whole way.
# CC=clang, V=1 (show commands), SAN=1 (address and undefined-behaviour sanitizers) are the switches.

CC      ?= cc
B       := build$(if $(SAN),/san)$(if $(filter clang%,$(notdir $(CC))),/clang)
Q       := $(if $(V),,@)
WARN    := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wmissing-prototypes \
           -Wswitch-enum -Werror
OPT     := -O2 -g -ffp-contract=off $(if $(SAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
comma   := ,
XML     := $(shell pkg-config --cflags libxml-2.0 2>/dev/null)
JANSSON := $(shell pkg-config --cflags jansson 2>/dev/null)
BLAS    := $(shell pkg-config --cflags openblas 2>/dev/null)
CFLAGS  += $(WARN) $(OPT) -I. -I$(B) $(XML) $(JANSSON) $(BLAS)
LDFLAGS += $(if $(SAN),-fsanitize=address$(comma)undefined)

LIB_C   := $(filter-out compiler/llmc.c,$(wildcard compiler/*/*.c)) $(wildcard runtime/isa.c runtime/program*.c runtime/hash.c)
RUN_C   := $(filter-out runtime/llmrun.c runtime/isa.c runtime/hash.c $(wildcard runtime/program*.c),$(wildcard runtime/*.c)) $(wildcard kernels/cpu/*.c)
GEN_O   := $(if $(wildcard grammar/llm.y),$(B)/grammar/llm.tab.o $(B)/grammar/llm.lex.o)
LIB_O   := $(LIB_C:%.c=$(B)/%.o) $(GEN_O)
RUN_O   := $(RUN_C:%.c=$(B)/%.o)
TEST_C  := $(wildcard tests/*.c tests/compiler/*/*.c tests/runtime/*.c tests/kernels/*.c)
TEST_O  := $(TEST_C:%.c=$(B)/%.o)
LIBS    := $(shell pkg-config --libs libxml-2.0 jansson 2>/dev/null) -lm
RUNLIBS := $(shell pkg-config --libs openblas 2>/dev/null) -lm

all: $(B)/llmc $(B)/llmrun

$(B)/llmc: $(B)/compiler/llmc.o $(LIB_O)
	$(Q)echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/llmrun: $(B)/runtime/llmrun.o $(RUN_O) $(B)/runtime/isa.o $(B)/runtime/hash.o $(patsubst %.c,$(B)/%.o,$(wildcard runtime/program*.c))
	$(Q)echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(RUNLIBS)

$(B)/tests/run: $(TEST_O) $(LIB_O) $(RUN_O)
	$(Q)echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ -lcunit $(LIBS) $(RUNLIBS)

$(B)/%.o: %.c
	$(Q)mkdir -p $(@D); echo "  CC  $<"; $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/grammar/llm.tab.c $(B)/grammar/llm.tab.h: grammar/llm.y
	$(Q)mkdir -p $(@D); echo "  BISON  $<"; bison -Wall -Werror -o $(B)/grammar/llm.tab.c --header=$(B)/grammar/llm.tab.h $<

$(B)/grammar/llm.lex.c $(B)/grammar/llm.lex.h: grammar/llm.l $(B)/grammar/llm.tab.h
	$(Q)mkdir -p $(@D); echo "  FLEX  $<"; flex -o $(B)/grammar/llm.lex.c --header-file=$(B)/grammar/llm.lex.h $<

# generated code is not held to our warning flags
$(B)/grammar/%.o: $(B)/grammar/%.c $(B)/grammar/llm.tab.h $(B)/grammar/llm.lex.h
	$(Q)echo "  CC  $<"; $(CC) -std=c11 -D_GNU_SOURCE $(OPT) -I. -I$(B) -c -o $@ $<

$(B)/compiler/model/parse.o: $(B)/grammar/llm.tab.h $(B)/grammar/llm.lex.h

check: $(B)/llmc $(B)/llmrun $(B)/tests/run
	$(Q)$(B)/tests/run

clean:
	$(Q)rm -rf build

.PHONY: all check clean
.SECONDARY:

-include $(shell find $(B) -name '*.d' 2>/dev/null)
