# llmc: all output goes to build/.
#   make                       builds llmc and llmrun
#   make deps                  installs what the build and its tests need
#   make demo                  the whole way on this machine
#   make check                 every suite, with the cases that take five minutes; DRAWS=all: with all; SUITE=NAME: those of that name
#   make asan                  the tests under the address and UB sanitizers
#   make check-layouts         LAYOUTS=334         drawn layouts, which must train as one rank does
#   make check-models          MODELS=1000         drawn models, of which no legal plan may be refused
#   make check-mutants         MUTANTS=100000      faults in drawn plans, which the verifier must find; VALID=10000 right plans
#   make check-fields          FIELDS=1000000      changed fields of plans, which must be refused or do no harm
#   make check-origin          ORIGIN=2000         drawn folders, honest and forged
#   make check-estimates       ESTIMATES=2000      the search's and 'estimate's figures against the programs'
#   make check-targets         TARGET_JOBS=500     drawn jobs for each target: nothing that its stack has not, and views agree
#   make check-jobs            DRAWN=500           random jobs: what a search with a hundred times the budget finds, too
#   make check-gaps            DRAWN=500 RIVALS=8  the same jobs: does no other decision beat a plan by more than its gap?
#   make check-recipes         the README's recipes carried out, and again without each of their files
#   make check-source-mutants  SOURCE_MUTANTS=400  faults in the source, which the tests must notice
#   make fuzz                  FUZZ_SECONDS=600    every fuzzer (clang); FUZZ_RUNS=10000000: so many inputs each
#   make coverage              lines that the tests run of what reads input and checks plans; SUITE=NAME by that alone
#   make bench                 the benchmarks
#   make bench-accuracy        predictions against published runs, from MEASURED=tests/bench/measured; likewise
#                              bench-memory, bench-micro and bench-leave-out
#   make bench-pairs           what switches of software stacks are worth, published and predicted
#   make gpu                   what tests/gpu/run needs, to be carried to a machine with a GPU
#   make cuda-archs            the plugin for every GPU that is supported
#   make install               DESTDIR= PREFIX=/usr/local
#   make clean
# Switches: CC=clang   V=1 shows commands   SAN=1 sanitizers   FUZZ=1 coverage for the fuzzers (clang)   QUICK=1 fewer cases
# Nothing here needs a GPU.

CC      ?= cc
PREFIX  ?= /usr/local
B       := build$(if $(SAN),/san)$(if $(FUZZ),/fuzz)$(if $(COVERAGE),/coverage)$(if $(filter clang%,$(notdir $(CC))),/clang)
Q       := $(if $(V),,@)
comma   := ,
SANITIZE := $(if $(or $(SAN),$(FUZZ)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=all)
WARN    := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wmissing-prototypes \
           -Wswitch-enum -Werror
OPT     := -O2 -g -ffp-contract=off $(SANITIZE) $(if $(SANITIZE),-fno-omit-frame-pointer) \
           $(if $(FUZZ),-fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp) \
           $(if $(COVERAGE),-O1 -w --coverage)
XML     := $(shell pkg-config --cflags libxml-2.0 2>/dev/null)
JANSSON := $(shell pkg-config --cflags jansson 2>/dev/null)
BLAS    := $(shell pkg-config --cflags openblas 2>/dev/null)
# configurations in YAML are imported where libyaml is
YAML    := $(shell pkg-config --exists yaml-0.1 2>/dev/null && echo yaml-0.1)
CFLAGS  += $(WARN) $(OPT) -I. -I$(B) $(XML) $(JANSSON) $(BLAS)
LDFLAGS += $(SANITIZE) $(if $(COVERAGE),--coverage -Wl$(comma)--wrap=_exit)

ISA_C   := runtime/error.c runtime/isa.c runtime/hash.c runtime/file.c runtime/workspace.c $(wildcard runtime/program*.c)
LIB_C   := compiler/compile.c compiler/fit.c compiler/llmc.c $(wildcard compiler/*/*.c) $(ISA_C)
RUN_C   := $(filter-out runtime/llmrun.c $(ISA_C),$(wildcard runtime/*.c)) $(filter-out runtime/cuda/plugin.c,$(wildcard runtime/cuda/*.c)) $(wildcard kernels/cpu/*.c)
GEN_O   := $(if $(wildcard grammar/llm.y),$(B)/grammar/llm.tab.o $(B)/grammar/llm.lex.o)
LIB_O   := $(LIB_C:%.c=$(B)/%.o) $(GEN_O)
RUN_O   := $(RUN_C:%.c=$(B)/%.o)
EXIT_O  := $(if $(COVERAGE),$(B)/tests/coverage/exit.o)
TEST_C  := $(wildcard tests/*.c tests/compiler/*.c tests/compiler/*/*.c tests/runtime/*.c tests/kernels/*.c tests/e2e/*.c tests/tools/*.c) $(filter-out tests/fake/no_driver.c,$(wildcard tests/fake/*.c))
TEST_O  := $(TEST_C:%.c=$(B)/%.o)
# the CUDA kernels as plain C++ on the CPU's emulation of the device language, for tests
CXX     := $(if $(filter clang%,$(notdir $(CC))),$(subst clang,clang++,$(CC)),g++)
HOST_CU := $(wildcard kernels/cuda/*.cu tests/kernels/*.cu) tests/emulated/host.cc
HOST_O  := $(patsubst %,$(B)/emulated/%.o,$(HOST_CU)) $(patsubst %.c,$(B)/%.o,$(wildcard kernels/cuda/*.c))
CXXFLAGS += -std=c++17 -D_GNU_SOURCE -Wall -Wextra -Werror $(OPT) -fno-exceptions -fno-rtti -fno-strict-aliasing -I.
BENCHES := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/bench_*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
LIBS    := $(shell pkg-config --libs libxml-2.0 jansson zlib $(YAML) 2>/dev/null) -lm
RUNLIBS := $(shell pkg-config --libs openblas jansson 2>/dev/null) -lm

# The CUDA plugin: all kernels and the CUDA runtime in one library that llmrun opens when asked for it.  It is built where
# nvcc is; a sanitizer's build goes without.  CUDA_ARCHS: compute capabilities, 90 = H100 and H200.
NVCC       ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA       := $(if $(NVCC),$(patsubst %/bin/,%,$(dir $(shell readlink -f $(NVCC)))))
CUDA_ARCHS ?= 90
CUDA_CU    := $(wildcard kernels/cuda/*.cu)
CUDA_C     := runtime/cuda/plugin.c runtime/isa.c runtime/hash.c runtime/file.c runtime/workspace.c $(wildcard kernels/cuda/*.c)
CUDA_B     := $(B)/cuda
CUDA_O     := $(CUDA_CU:%.cu=$(CUDA_B)/%.cu.o) $(CUDA_C:%.c=$(CUDA_B)/%.o)
PLUGIN     := $(if $(NVCC),$(if $(SAN)$(FUZZ),,$(B)/llmrun-cuda.so))
# nvcc hands the host's compiler headers as part of one file, in which clang wants every static function used
CUDA_HOST  := $(if $(filter clang%,$(notdir $(CC))),-ccbin $(CXX) -Xcompiler -Wno-unused-function)
GENCODE     = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a))

# The MPI plugin: messages between hosts, in a library that llmrun opens for --transport mpi.  It is built where an MPI
# library's headers are.
MPI        := $(shell pkg-config --exists ompi-c 2>/dev/null && echo ompi-c)
MPI_CFLAGS := $(addprefix -isystem ,$(patsubst -I%,%,$(if $(MPI),$(shell pkg-config --cflags-only-I $(MPI)))))
MPI_PLUGIN := $(if $(MPI),$(if $(FUZZ),,$(B)/llmrun-mpi.so))

# The compiler's way to an estimate once more, for WebAssembly, which pages of `llmc explore` run.  It is built where clang
# finds what it needs to link for WASI; a sanitizer's build goes without.
WASM_CC    ?= clang
WASM_NEEDS := $(and $(shell command -v wasm-ld 2>/dev/null),$(wildcard $(shell $(WASM_CC) --target=wasm32-wasi \
              -print-file-name=libc.a 2>/dev/null)),$(wildcard $(shell $(WASM_CC) --target=wasm32-wasi -print-libgcc-file-name 2>/dev/null)))
WASM       := $(if $(WASM_NEEDS),$(if $(SAN)$(FUZZ)$(COVERAGE),,$(B)/explore.wasm))
WASM_C     := $(wildcard compiler/explore/module/*.c) compiler/compile.c compiler/fit.c compiler/llmc.c \
              $(foreach d,support profile target model topology cost schedule simulate lower place export search,$(wildcard compiler/$(d)/*.c)) \
              $(addprefix compiler/command/,command.c predict.c) $(addprefix compiler/emit/,plan.c predicted.c) \
              $(wildcard $(addprefix compiler/inspect/,estimate.c explain*.c fitted.c forecast.c lesson.c show.c sweep.c table.c traffic.c)) \
              $(filter-out runtime/program_check% runtime/program_write.c,$(ISA_C))
WASM_O     := $(patsubst %.c,$(B)/wasm/%.o,$(filter-out compiler/topology/topo_xml.c,$(WASM_C)) grammar/llm.tab.c grammar/llm.lex.c)

all: $(B)/llmc $(B)/llmrun $(PLUGIN) $(MPI_PLUGIN)
	$(Q)$(if $(PLUGIN),,echo "  CUDA plugin: not built ($(if $(NVCC),a sanitizer's build,nvcc was not found))")
	$(Q)$(if $(MPI_PLUGIN),,echo "  MPI plugin: not built ($(if $(MPI),a fuzzer's build,Open MPI was not found: libopenmpi-dev))")
	$(Q)$(if $(YAML),,echo "  import of YAML: not built (libyaml was not found: libyaml-dev)")
	$(Q)$(if $(WASM),,echo "  pages of llmc explore: not built ($(if $(WASM_NEEDS),a build for tests,what clang needs for WASM was not found: clang lld wasi-libc libclang-rt-14-dev-wasm32))")

$(B)/llmrun-mpi.so: runtime/mpi/plugin.c | $(B)/.deps
	$(Q)mkdir -p $(B)/mpi; echo "  LD  $@"; $(CC) $(CFLAGS) $(MPI_CFLAGS) -fPIC -fvisibility=hidden -MMD -MP \
	-MF $(B)/mpi/plugin.d -shared -o $@ $< $(shell pkg-config --libs $(MPI) 2>/dev/null)

$(B)/llmrun-cuda.so: $(CUDA_O)
	$(Q)echo "  LD  $@"; $(NVCC) $(GENCODE) -shared -cudart static -o $@ $^ -ldl

$(CUDA_B)/%.cu.o: %.cu | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  NVCC $<"; $(NVCC) $(GENCODE) -std=c++17 -O3 -lineinfo -I. -Werror all-warnings \
	-Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden $(CUDA_HOST) -MMD -MP -c -o $@ $<

$(CUDA_B)/%.o: %.c | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  CC  $< (plugin)"; $(CC) $(CFLAGS) -isystem $(CUDA)/include -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

# the memory-bound kernels' check and bench for a machine with a GPU; -emulated is the same program without one
GPU_O := $(B)/tests/kernels/cuda_cases.o $(B)/tests/kernels/cuda_table.o $(RUN_O) $(ISA_C:%.c=$(B)/%.o)
$(B)/tests/gpu/kernels: $(CUDA_B)/tests/gpu/kernels.cu.o $(CUDA_CU:%.cu=$(CUDA_B)/%.cu.o) $(patsubst %.c,$(CUDA_B)/%.o,$(wildcard kernels/cuda/*.c)) $(GPU_O)
	$(Q)mkdir -p $(@D); echo "  LD  $@"; $(NVCC) $(GENCODE) -cudart static -o $@ $^ $(RUNLIBS) -ldl

$(B)/tests/gpu/kernels-emulated: $(B)/emulated/tests/gpu/kernels.cu.o $(filter-out $(B)/emulated/tests/kernels/%,$(HOST_O)) $(GPU_O)
	$(Q)mkdir -p $(@D); echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(RUNLIBS)

# products and attention, likewise
PRODUCTS_O := $(B)/tests/kernels/cuda_compare.o $(filter-out $(B)/tests/kernels/%,$(GPU_O))
$(B)/tests/gpu/products: $(CUDA_B)/tests/gpu/products.cu.o $(CUDA_CU:%.cu=$(CUDA_B)/%.cu.o) $(patsubst %.c,$(CUDA_B)/%.o,$(wildcard kernels/cuda/*.c)) $(PRODUCTS_O)
	$(Q)mkdir -p $(@D); echo "  LD  $@"; $(NVCC) $(GENCODE) -cudart static -o $@ $^ $(RUNLIBS) -ldl

$(B)/tests/gpu/products-emulated: $(B)/emulated/tests/gpu/products.cu.o $(filter-out $(B)/emulated/tests/kernels/%,$(HOST_O)) $(PRODUCTS_O)
	$(Q)mkdir -p $(@D); echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(RUNLIBS)

# all that tests/gpu/run needs, for a machine that cannot build it: with the libraries of this one that are not everywhere
gpu: all $(B)/tests/gpu/kernels $(B)/tests/gpu/products
	$(Q)mkdir -p $(B)/gpu-lib; ldd $(B)/llmc $(B)/llmrun $(B)/tests/gpu/products | \
	awk '$$3 ~ /^\// && $$1 !~ /^lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so/ {print $$3}' | sort -u | xargs -r cp -Lt $(B)/gpu-lib
	$(Q)rm -rf $(B)/gpu-bundle && mkdir -p $(B)/gpu-bundle/tests/gpu && cp $(B)/llmc $(B)/llmrun $(B)/llmrun-cuda.so $(B)/gpu-bundle && \
	cp $(B)/tests/gpu/kernels $(B)/tests/gpu/products $(B)/gpu-bundle/tests/gpu && cp -R $(B)/gpu-lib $(B)/gpu-bundle && \
	find $(B)/gpu-bundle -type f -exec strip {} + && tar -C $(B)/gpu-bundle -czf $(B)/gpu.tar.gz . && rm -rf $(B)/gpu-bundle && \
	echo "  $(B)/gpu.tar.gz: BUILT=1 tests/gpu/run unpacks it"

# the fake device as a plugin, to run llmrun --device cuda and tests/gpu/run where no GPU is
FAKE_C := $(filter-out tests/fake/no_driver.c,$(wildcard tests/fake/*.c)) $(wildcard kernels/cpu/*.c) $(addprefix runtime/,error.c isa.c hash.c file.c data.c routing.c device_cpu.c world.c rendezvous.c)
$(B)/tests/fake/llmrun-fake.so: $(FAKE_C:%.c=$(B)/fake/%.o)
	$(Q)echo "  LD  $@"; mkdir -p $(@D); $(CC) $(LDFLAGS) -shared -o $@ $^ $(RUNLIBS)
$(B)/fake/%.o: %.c | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  CC  $< (fake)"; $(CC) $(CFLAGS) -fPIC -MMD -MP -c -o $@ $<

# every architecture that is supported, without warnings: the plugin's own, and the others in a folder of their own
cuda-archs: $(PLUGIN)
	$(Q)$(if $(NVCC),,echo "  nvcc was not found"; exit 4)
	+$(Q)$(MAKE) --no-print-directory CUDA_ARCHS="$(filter-out $(CUDA_ARCHS),80 90 100)" CUDA_B=$(B)/cuda-archs $(B)/cuda-archs.so

$(B)/cuda-archs.so: $(CUDA_O)
	$(Q)echo "  LD  $@"; $(NVCC) $(GENCODE) -shared -cudart static -o $@ $^ -ldl

$(B)/llmc: $(B)/compiler/main.o $(LIB_O) $(EXIT_O)
	$(Q)echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/llmrun: $(B)/runtime/llmrun.o $(RUN_O) $(ISA_C:%.c=$(B)/%.o) $(EXIT_O)
	$(Q)echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(RUNLIBS)

$(B)/tests/run: $(TEST_O) $(LIB_O) $(RUN_O) $(HOST_O) $(EXIT_O) | $(B)/tests/preload/faults.so $(B)/tests/preload/clock.so $(B)/tests/preload/memory.so
	$(Q)echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ -lcunit $(LIBS) $(RUNLIBS)

# faults of disks, deaths of processes, clocks that jump and failing allocations, to be preloaded
$(B)/tests/preload/%.so: tests/preload/%.c | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  LD  $@"; $(CC) $(filter-out $(SANITIZE),$(CFLAGS)) -shared -fPIC -o $@ $<

# a driver without a device, for plans that are built without one
$(B)/tests/fake/libcuda.so: tests/fake/no_driver.c | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  LD  $@"; $(CC) $(filter-out $(SANITIZE),$(CFLAGS)) -shared -fPIC -Wl,-soname,libcuda.so -o $@ $<

$(B)/tests/bench/%: $(B)/tests/bench/%.o $(LIB_O) $(RUN_O)
	$(Q)echo "  LD  $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(RUNLIBS)

$(B)/tests/bench/bench_micro $(B)/tests/bench/bench_comm: $(B)/tests/bench/table.o
$(B)/tests/bench/bench_pairs: $(B)/tests/compiler/target/pairs.o

# an archive, since libFuzzer looks at the counters of all that is linked after every input
$(B)/tests/fuzz/all.a: $(LIB_O) $(RUN_O)
	$(Q)echo "  AR  $@"; mkdir -p $(@D); rm -f $@; ar qcs $@ $^
$(B)/tests/fuzz/fuzz_program: $(B)/tests/runtime/program_parse.o $(B)/tests/runtime/program_scan.o
$(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(B)/tests/fuzz/common.o $(B)/tests/fuzz/all.a
	$(Q)echo "  LD  $@"; $(CC) $(LDFLAGS) -fsanitize=fuzzer -Wl$(comma)--as-needed -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS) $(RUNLIBS)

ifneq ($(YAML),)
$(B)/compiler/import/yaml.o: CFLAGS += -DLLMC_YAML $(shell pkg-config --cflags yaml-0.1 2>/dev/null)
endif

# kernels: loops over rows become vector code only so; results stay those of IEEE arithmetic in the order written
$(B)/kernels/%.o: OPT += -O3 -fno-trapping-math -fno-math-errno
# a search is millions of short sums and square roots: a third of its time; placing and proving gain a twentieth
$(B)/compiler/%.o: OPT += -O3 -fno-math-errno
# tests are compiled oftener than they compute
$(B)/tests/%.o $(B)/emulated/%.o: OPT += -O1

$(B)/%.o: %.c | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  CC  $<"; $(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(B)/emulated/%.o: % | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  CXX $<"; $(CXX) -x c++ $(CXXFLAGS) -DCUDA_EMULATION='"tests/emulated/host.cuh"' -MMD -MP -c -o $@ $<

$(B)/grammar/llm.tab.c $(B)/grammar/llm.tab.h &: grammar/llm.y | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  BISON  $<"; bison -Wall -Werror -o $(B)/grammar/llm.tab.c --header=$(B)/grammar/llm.tab.h $<

$(B)/grammar/llm.lex.c $(B)/grammar/llm.lex.h &: grammar/llm.l $(B)/grammar/llm.tab.h
	$(Q)mkdir -p $(@D); echo "  FLEX  $<"; flex -o $(B)/grammar/llm.lex.c --header-file=$(B)/grammar/llm.lex.h $<

# generated code is not held to our warning flags
$(B)/grammar/%.o: $(B)/grammar/%.c $(B)/grammar/llm.tab.h $(B)/grammar/llm.lex.h
	$(Q)echo "  CC  $<"; $(CC) -std=c11 -D_GNU_SOURCE $(OPT) -I. -I$(B) -c -o $@ $<

$(B)/compiler/model/parse.o: $(B)/grammar/llm.tab.h $(B)/grammar/llm.lex.h

# the software stacks that come with the compiler, as string literals; the folder's time says that one has gone
$(B)/compiler/profile/builtin.inc: $(sort $(wildcard compiler/profile/*.profile)) compiler/profile/.
	$(Q)mkdir -p $(@D); for f in $(filter %.profile,$^); do echo "{\"$$(basename $$f .profile)\","; \
	sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $$f; echo "},"; done >$@

$(B)/compiler/profile/profile.o: $(B)/compiler/profile/builtin.inc

# the same of the software stacks that run plans, and their names for the vocabulary
$(B)/compiler/target/builtin.inc: $(sort $(wildcard compiler/target/*.target)) compiler/target/.
	$(Q)mkdir -p $(@D); for f in $(filter %.target,$^); do echo "{\"$$(basename $$f .target)\","; \
	echo "(const char *const[]){"; sed 's/[\\"]/\\&/g; s/.*/"&\\n",/' $$f; echo "NULL}},"; done >$@

$(B)/compiler/target/names.inc: $(B)/compiler/target/builtin.inc
	$(Q)sed -n 's/^{\("[^"]*"\),$$/" " \1/p' $< >$@

$(B)/compiler/target/target.o: $(B)/compiler/target/builtin.inc
$(B)/compiler/model/vocab.o: $(B)/compiler/target/names.inc

# the page of reports, a string literal per line; the scripts in the order in which they need each other
PAGE    := compiler/report/page
SCRIPTS := words record timeline detail charts main
$(B)/compiler/report/page.inc: $(PAGE)/index.html $(PAGE)/style.css $(SCRIPTS:%=$(PAGE)/%.js)
	$(Q)mkdir -p $(@D); sed -e '/<!--style-->/{r $(PAGE)/style.css' -e 'd}' -e '/<!--script-->/{' \
	$(SCRIPTS:%=-e 'r $(PAGE)/%.js') -e 'd}' $(PAGE)/index.html | sed 's/[\\"]/\\&/g; s/.*/"&",/' >$@

$(B)/compiler/report/page.o: $(B)/compiler/report/page.inc

# Warnings are the affair of the compiler's own build: here `unsigned long` has 32 bits, and formats warn about what
# strbuf_json() reads as 64.  The stack is the usual one of a process.
$(B)/explore.wasm: $(WASM_O)
	$(Q)echo "  LD  $@"; $(WASM_CC) --target=wasm32-wasi -Wl,-z,stack-size=8388608 -Wl,--strip-all -o $@ $^

$(B)/wasm/%.o: %.c | $(B)/.deps
	$(Q)mkdir -p $(@D); echo "  CC  $< (wasm)"; $(WASM_CC) --target=wasm32-wasi -std=c11 -D_GNU_SOURCE -O2 -ffp-contract=off \
	-fno-math-errno -w -I. -I$(B) -MMD -MP -c -o $@ $<

$(B)/wasm/grammar/%.o: $(B)/grammar/%.c $(B)/grammar/llm.tab.h $(B)/grammar/llm.lex.h
	$(Q)mkdir -p $(@D); echo "  CC  $< (wasm)"; $(WASM_CC) --target=wasm32-wasi -std=c11 -D_GNU_SOURCE -O2 -w -I. -I$(B) -c -o $@ $<

$(B)/wasm/compiler/model/parse.o: $(B)/grammar/llm.tab.h $(B)/grammar/llm.lex.h
$(B)/wasm/compiler/profile/profile.o: $(B)/compiler/profile/builtin.inc
$(B)/wasm/compiler/target/target.o: $(B)/compiler/target/builtin.inc
$(B)/wasm/compiler/model/vocab.o: $(B)/compiler/target/names.inc

# the module as string literals, compressed and in base64, and the page; where clang could not link when this folder was
# built before, it is empty
$(B)/compiler/explore/module.inc: $(WASM) $(if $(WASM),$(if $(wildcard $(WASM)),,again))
	$(Q)mkdir -p $(@D); $(if $(WASM),gzip -9n <$(WASM) | base64 -w 4000 | sed 's/.*/"&"$(comma)/',:) >$@

EXPLORE := compiler/explore/page
EXPLORE_JS := $(PAGE)/words.js $(EXPLORE)/machine.js $(EXPLORE)/settings.js $(EXPLORE)/answer.js $(EXPLORE)/main.js
$(B)/compiler/explore/page.inc: $(EXPLORE)/index.html $(PAGE)/style.css $(EXPLORE)/style.css $(EXPLORE_JS)
	$(Q)mkdir -p $(@D); sed -e '/<!--style-->/{r $(PAGE)/style.css' -e 'r $(EXPLORE)/style.css' -e 'd}' -e '/<!--script-->/{' \
	$(EXPLORE_JS:%=-e 'r %') -e 'd}' $(EXPLORE)/index.html | sed 's/[\\"]/\\&/g; s/.*/"&",/' >$@

$(B)/compiler/explore/page.o: $(B)/compiler/explore/page.inc $(B)/compiler/explore/module.inc

# once per build folder: name what is missing before the first compilation fails without it
$(B)/.deps:
	$(Q)tests/tools/deps.sh --check && mkdir -p $(B) && touch $@

deps:
	$(Q)tests/tools/deps.sh

# pkg-config's answers above are taken when this file is read, perhaps before `deps` installed anything: what installs
# first goes on in a second make.  -jN unless the caller chose.
AGAIN = +$(Q)$(MAKE) --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

check: deps
	$(AGAIN) run-tests
asan: deps
	$(AGAIN) SAN=1 QUICK=1 run-tests
demo: deps
	$(AGAIN) run-demo
bench: deps
	$(AGAIN) run-bench
fuzz:
	$(Q)tests/tools/deps.sh --tests
	$(AGAIN) CC=clang FUZZ=1 run-fuzz
coverage:
	$(AGAIN) COVERAGE=1 NVCC= run-coverage

# what tests/gpu/run uses without a GPU; a sanitizer's run goes without
DRY := $(if $(SAN)$(FUZZ),,$(B)/tests/fake/llmrun-fake.so $(B)/tests/gpu/kernels-emulated $(B)/tests/gpu/products-emulated)

# the tests drive the real binaries and check the tree itself; they learn from the environment what was built and how.
# One suite more at a time than there are cores: some wait for processes to die, disks and links
run-tests: all $(B)/tests/run $(B)/tests/bench/accuracy $(BENCHES:%=$(B)/tests/bench/%) $(B)/tests/fake/libcuda.so $(DRY)
	$(Q)LLMC_BUILD=$(B) LLMC_JOBS=$(or $(JOBS),$(shell echo $$(($$(nproc) + 1)))) LLMC_QUICK=$(QUICK) LLMC_DRAWS=$(DRAWS) LLMC_PLUGIN=$(PLUGIN) \
	LLMC_CC='$(CC) $(filter-out $(SANITIZE),$(CFLAGS))' $(B)/tests/run $(SUITE)

# a thousand and more drawn layouts against one rank: LAYOUTS of each of three models, a sixteenth as many of the others; in
# parts with LAYOUTS_FROM=SEED and LAYOUT_MODELS='llama mixtral'; JOBS=1 on one core
LAYOUTS ?= 334
check-layouts: all $(B)/tests/run
	$(Q)LLMC_BUILD=$(B) LAYOUTS=$(LAYOUTS) $(B)/tests/run any_layout

# drawn models on two drawn layouts each, of which no plan may be refused; in parts with
# MODELS_FROM=SEED; MODEL=SEED is one
MODELS ?= 1000
check-models: all $(B)/tests/run
	$(Q)LLMC_BUILD=$(B) MODELS=$(MODELS) $(B)/tests/run drawn_models

# faults in drawn plans, and valid plans: what the verifier must find, and what it must accept; in parts with
# MUTANTS_FROM=SEED
MUTANTS ?= 100000
VALID ?= 10000
check-mutants: $(B)/tests/run
	$(Q)LLMC_BUILD=$(B) MUTANTS=$(MUTANTS) VALID=$(VALID) $(B)/tests/run verify_mutation

# fields of every table of plans over all dimensions, one changed at a time: what the verifier accepts must do no harm;
# in parts with FIELDS_FROM=SEED
FIELDS ?= 1000000
check-fields: $(B)/tests/run
	$(Q)LLMC_BUILD=$(B) FIELDS=$(FIELDS) $(B)/tests/run fields

# folders of drawn layouts and of all worked examples: what comes from its inputs, and what was forged
ORIGIN ?= 2000
check-origin: $(B)/tests/run
	$(Q)LLMC_BUILD=$(B) ORIGIN=$(ORIGIN) $(B)/tests/run origin

# what the search ranks by against the programs that come out, over drawn decisions of realistic size, the first of them
# SEED: time and memory per schedule and per dimension
ESTIMATES ?= 2000
check-estimates: $(B)/tests/run
	$(Q)LLMC_BUILD=$(B) ESTIMATES=$(ESTIMATES) SEED=$(or $(SEED),1) $(B)/tests/run =estimates
	$(Q)LLMC_BUILD=$(B) FORECASTS=$(ESTIMATES) SEED=$(or $(SEED),1) $(B)/tests/run =forecast

TARGET_JOBS ?= 500
check-targets: $(B)/tests/run
	$(Q)LLMC_BUILD=$(B) TARGET_JOBS=$(TARGET_JOBS) $(B)/tests/run target

# random jobs, DRAWN of them: does `plan` find whatever a search with a hundred times the budget finds?  others with SEED=N
DRAWN ?= 500
check-jobs: build/llmc
	$(Q)python3 tests/tools/jobs.py --count $(DRAWN) --seed $(or $(SEED),1)

# RIVALS other decisions of DRAWN such jobs, pinned and planned: does any beat the plan by more than its printed gap?
RIVALS ?= 8
check-gaps: build/llmc
	$(Q)python3 tests/tools/gaps.py --count $(DRAWN) --seed $(or $(SEED),1) --rivals $(RIVALS)

# the README's recipes, tests/recipes/*.patch, in a copy of the tree: built, tested, and with each file left out in turn
check-recipes: all $(B)/tests/run
	$(Q)CC='$(CC)' NVCC='$(NVCC)' tests/tools/recipes.sh $(B)

# one fault at a time in the source of the compiler and the runtime: which of SOURCE_MUTANTS drawn ones make some test
# fail; goes on where it was cut off; in parts with MUTANTS_FROM=N, others with SEED=N, JOBS=1 on one core, at most MOST
# seconds of suites each, those of FIRST before others; RULES=1: each refusal of a plan is left out in turn instead
SOURCE_MUTANTS ?= 400
check-source-mutants: build/llmc build/llmrun build/tests/run build/tests/fake/libcuda.so $(DRY)
	$(Q)python3 tests/tools/source_mutants.py --count $(SOURCE_MUTANTS) --from $(or $(MUTANTS_FROM),0) \
	--seed $(or $(SEED),1) --jobs $(or $(JOBS),$(shell nproc)) $(if $(MOST),--most $(MOST)) $(if $(FIRST),--first $(FIRST)) \
	$(if $(RULES),--rules)

run-demo: all
	$(Q)tests/tools/demo.sh $(B)

run-bench: all $(BENCHES:%=$(B)/tests/bench/%)
	$(Q)tests/bench/run.sh $(B)

# Python's compiled files belong with everything else that is made
export PYTHONPYCACHEPREFIX := $(abspath $(B))/pycache

# Published measurements: the tables of the tree, or with MEASURED=FOLDER those that tests/bench/compact.py makes of the
# collection they were taken from (runs.jsonl and others)
MEASURED ?= tests/bench/measured
TABLES   := $(if $(wildcard $(MEASURED)/runs.jsonl),$(B)/bench/measured,$(MEASURED))
measured:
	$(Q)tests/tools/deps.sh --check --python
	$(Q)$(if $(filter $(MEASURED),$(TABLES)),,mkdir -p $(TABLES) && python3 tests/bench/compact.py $(MEASURED) $(TABLES))

# predictions against published runs; exit status 1 where a goal is missed
bench-accuracy: $(B)/tests/bench/accuracy measured
	$(Q)python3 tests/bench/accuracy.py --build $(B) --measured $(TABLES) --work $(B)/bench

# the same rows, each source predicted by a fit of the profiles without it; tests/bench/fit.py --out writes profiles
PYTHON ?= python3
bench-leave-out: $(B)/tests/bench/accuracy measured
	$(Q)$(PYTHON) -c 'import numpy' 2>/dev/null || { echo "  numpy is missing: apt-get install python3-numpy, or PYTHON=a Python that has it"; exit 4; }
	$(Q)$(PYTHON) tests/bench/fit.py --build $(B) --measured $(TABLES) --work $(B)/bench --rounds 4 --leave-out

# predicted against measured microbenchmarks
bench-micro: $(B)/tests/bench/bench_micro $(B)/tests/bench/bench_comm measured
	$(Q)$< $(TABLES) $(KIND)
	$(Q)$(B)/tests/bench/bench_comm $(TABLES)

# predicted against measured memory of published runs
bench-pairs: $(B)/tests/bench/bench_pairs
	$(Q)$(B)/tests/bench/bench_pairs
bench-memory: $(B)/tests/bench/accuracy measured
	$(Q)python3 tests/bench/memory.py $(B) $(TABLES)

# lines that tests run of what reads input and of what checks plans, by the suites that this is up to
COVER := resume continued bad_plans checkpoint_faults moves program_rules odd_files ast model bad cases units hostlist topo_xml \
         topo topo_nccl topo_bad topo_show decision refused_decisions plan_files plan_schedule schedule actions left_out \
         origin_words program program_bad program_damage ranks isa folder safetensors weights checkpoint_damage resume_refused \
         refusals verify_rules verify_accept verify_store verify_properties wrong_plans job_tables skew cut value extent shards \
         precision loss_scale fields generate stages faults reference experts fp16
run-coverage: $(B)/llmc $(B)/llmrun $(B)/tests/run
	$(Q)tests/tools/coverage.sh $(B) $(or $(SUITE),$(COVER))

FUZZ_SECONDS ?= 600
run-fuzz: $(FUZZERS:%=$(B)/tests/fuzz/%)
	$(Q)FUZZ_RUNS=$(FUZZ_RUNS) tests/tools/fuzz.sh $(B) $(FUZZ_SECONDS) $(FUZZERS)

install: all
	$(Q)install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/doc/llmc $(DESTDIR)$(PREFIX)/share/llmc
	$(Q)install -m 755 $(B)/llmc $(B)/llmrun $(PLUGIN) $(MPI_PLUGIN) $(DESTDIR)$(PREFIX)/bin
	$(Q)install -m 644 README.md LICENSE compiler/LIMITS.md $(DESTDIR)$(PREFIX)/share/doc/llmc
	$(Q)cp -R plans topologies $(DESTDIR)$(PREFIX)/share/llmc
	$(Q)echo "  installed llmc and llmrun in $(DESTDIR)$(PREFIX)/bin, plans and topologies in $(DESTDIR)$(PREFIX)/share/llmc"

clean:
	$(Q)rm -rf build

again:
.PHONY: again all gpu measured cuda-archs deps check check-layouts check-models check-mutants check-fields check-origin check-estimates \
        check-targets check-jobs check-gaps check-recipes check-source-mutants asan demo bench bench-accuracy bench-leave-out bench-micro bench-memory bench-pairs fuzz coverage run-tests \
        run-demo run-bench run-fuzz run-coverage install clean
.SECONDARY:

-include $(shell find $(B) -name '*.d' 2>/dev/null)
