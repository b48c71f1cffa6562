/* A program that loads the library while it runs, and unloads it: a job each time, and the end of the process is in order. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int round = 0; round < 3 && argc == 2; round++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
        const char *const calls[] = {"shmem_init", "shmem_barrier_all", "shmem_finalize"};
        for (int i = 0; i < 3; i++) {
            void (*call)(void);
            *(void **)&call = dlsym(library, calls[i]);
            call();
        }
        dlclose(library);
    }
    return 0;
}
