/*
 * What a library of the server's takes from the server is replaced.
 *
 *	 gen_random_bytes(16) ─▶ pgcrypto.so ─▶ its table of addresses ─▶ noted_strong_random ─▶ pg_strong_random
 *
 * The functions of an extension are found in its library by every session for itself, so no table of
 * the server's has their addresses. But what such a library calls of the server's, it calls by an
 * address that the loader has written into the library's memory. The library is loaded here, in the
 * postmaster, and the address replaced; sessions inherit both. A session that finds another file of
 * that name by then loads that beside this one, and nothing of it is noted.
 */
#include "hindcast.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "miscadmin.h"

typedef struct Search
{
	const char *path;
	const char *symbol;
	void	   *by;
	bool		replaced;
} Search;

/* The loader of glibc makes addresses of these when it loads a library; others leave them as they are. */
static uintptr_t
dynamic_address(const struct dl_phdr_info *library, uintptr_t value)
{
	return value < library->dlpi_addr ? library->dlpi_addr + value : value;
}

/* Of the library, as it was before it was loaded. */
typedef struct Tables
{
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Rela) *relocations[2];
	Size		counts[2];
} Tables;

static Tables
tables_of(const struct dl_phdr_info *library, const ElfW(Dyn) *dynamic)
{
	Tables		tables = {0};

	for (; dynamic->d_tag != DT_NULL; dynamic++)
	{
		uintptr_t	address = dynamic_address(library, dynamic->d_un.d_ptr);

		switch (dynamic->d_tag)
		{
			case DT_SYMTAB:
				tables.symbols = (const ElfW(Sym) *) address;
				break;
			case DT_STRTAB:
				tables.names = (const char *) address;
				break;
			case DT_RELA:
				tables.relocations[0] = (const ElfW(Rela) *) address;
				break;
			case DT_RELASZ:
				tables.counts[0] = dynamic->d_un.d_val / sizeof(ElfW(Rela));
				break;
			case DT_JMPREL:
				tables.relocations[1] = (const ElfW(Rela) *) address;
				break;
			case DT_PLTRELSZ:
				tables.counts[1] = dynamic->d_un.d_val / sizeof(ElfW(Rela));
				break;
		}
	}
	return tables;
}

static uintptr_t
page_of(uintptr_t address)
{
	return address & ~((uintptr_t) sysconf(_SC_PAGESIZE) - 1);
}

/* Writes to a place that the linker or the loader made read-only, and that is so again. */
bool
write_read_only(void **at, void *address)
{
	void	   *page = (void *) page_of((uintptr_t) at);
	Size		length = (uintptr_t) (at + 1) - (uintptr_t) page;

	if (mprotect(page, length, PROT_READ | PROT_WRITE) != 0)
		return false;
	*at = address;
	return mprotect(page, length, PROT_READ) == 0;
}

/* Writes to a library's table of addresses, which the loader may have made read-only. */
static bool
write_address(const struct dl_phdr_info *library, void **at, void *address)
{
	uintptr_t	page = page_of((uintptr_t) at);

	for (int i = 0; i < library->dlpi_phnum; i++)
	{
		const ElfW(Phdr) *part = &library->dlpi_phdr[i];
		uintptr_t	start = library->dlpi_addr + part->p_vaddr;

		/* Only whole pages of it are. */
		if (part->p_type == PT_GNU_RELRO && page >= page_of(start) &&
			page < page_of(start + part->p_memsz))
			return write_read_only(at, address);
	}
	*at = address;
	return true;
}

static bool
replace_in(const struct dl_phdr_info *library, const Tables *tables, const Search *search)
{
	for (Size kind = 0; kind < lengthof(tables->counts); kind++)
	{
		for (Size i = 0; i < tables->counts[kind]; i++)
		{
			const ElfW(Rela) *relocation = &tables->relocations[kind][i];
			const ElfW(Sym) *symbol = &tables->symbols[ELF64_R_SYM(relocation->r_info)];

			if (strcmp(tables->names + symbol->st_name, search->symbol) == 0)
				return write_address(library, (void **) (library->dlpi_addr + relocation->r_offset), search->by);
		}
	}
	return false;
}

static int
look_into(struct dl_phdr_info *library, size_t size, void *argument)
{
	Search	   *search = argument;

	if (strcmp(library->dlpi_name, search->path) != 0)
		return 0;
	for (int i = 0; i < library->dlpi_phnum; i++)
	{
		const ElfW(Phdr) *part = &library->dlpi_phdr[i];

		if (part->p_type == PT_DYNAMIC)
		{
			Tables		tables = tables_of(library,
										   (const ElfW(Dyn) *) (library->dlpi_addr + part->p_vaddr));

			if (tables.symbols != NULL && tables.names != NULL)
				search->replaced = replace_in(library, &tables, search);
		}
	}
	return 1;
}

/*
 * Loads a library from the folder of the server's, and has it call another function than the one
 * of this name. Where there is no such library, there is nothing to replace.
 */
bool
replace_import(const char *library, const char *symbol, void *by)
{
	char		path[MAXPGPATH];
	Search		search = {.path = path, .symbol = symbol, .by = by};

	snprintf(path, sizeof(path), "%s/%s.so", pkglib_path, library);
	if (access(path, R_OK) != 0)
		return true;
	if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL)
		return false;
	dl_iterate_phdr(look_into, &search);
	return search.replaced;
}
