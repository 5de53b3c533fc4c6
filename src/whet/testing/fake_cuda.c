// A libcuda.so.1 without a device, checked by the compiler against CUDA's own header. Memory is the
// host's, launches take a simulated time and do nothing, and all of it is written to FAKE_CUDA_LOG.

#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Older drivers have this one only, so it is the one that is called.
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end);

#define CLOCK_KHZ 1000000
#define SHARED_BYTES 232448

struct CUevent_st { double at_ns; long number; };
struct CUmod_st { int is_binary; };
struct CUfunc_st { char name[256]; };

static double now_ns;
static long recorded, completed;
static CUresult spoilt;

static void say(const char *text) {
  const char *path = getenv("FAKE_CUDA_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (file) {
    fprintf(file, "%d %s\n", (int)getpid(), text);
    fclose(file);
  }
}

static int told_to(const char *what) {
  const char *asked = getenv("FAKE_CUDA_FAIL");
  return asked && strstr(asked, what) != NULL;
}

CUresult cuInit(unsigned int flags) {
  say("cuInit");
  return told_to("cuInit") ? CUDA_ERROR_NO_DEVICE : flags ? CUDA_ERROR_INVALID_VALUE : 0;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = 40 + ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  if (device < 40)
    return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = SHARED_BYTES; break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = CLOCK_KHZ; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
  default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  snprintf(text, length, "0000:%02X:00.0", device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  *context = (CUcontext)(0x7f0000000000 + device);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return (unsigned long)context > 0x7f0000000000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxSynchronize(void) {
  completed = recorded;
  return spoilt;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t size) {
  char line[64];
  snprintf(line, sizeof line, "cuMemAlloc %zu", size);
  say(line);
  if (size > 1ul << 32)
    return CUDA_ERROR_OUT_OF_MEMORY;
  // As the driver does, at a multiple of 256 bytes that is none of 512.
  *address = (CUdeviceptr)aligned_alloc(512, (size + 1023) / 512 * 512) + 256;
  return spoilt;
}

CUresult cuMemFree(CUdeviceptr address) {
  free((void *)(address - 256));
  return spoilt;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *source, size_t size) {
  memcpy((void *)to, source, size);
  return spoilt;
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr source, size_t size) {
  memcpy((void *)to, (void *)source, size);
  return spoilt;
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t size) {
  memset((void *)address, value, size);
  return spoilt;
}

// A handle is the address itself, good for the process that it is an address of.
CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags) {
  struct { CUdeviceptr address; pid_t owner; } found;
  memcpy(&found, handle.reserved, sizeof found);
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || found.owner != getpid())
    return CUDA_ERROR_INVALID_VALUE;
  *address = found.address;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) { return spoilt; }

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  *module = calloc(1, sizeof **module);
  (*module)->is_binary = memcmp(image, "\177ELF", 4) == 0;
  if (!(*module)->is_binary && !strstr(image, ".version"))
    return CUDA_ERROR_INVALID_IMAGE;
  say((*module)->is_binary ? "cuModuleLoadData cubin" : "cuModuleLoadData ptx");
  return spoilt;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
                            CUjit_option *options, void **values) {
  if (count != 1 || options[0] != CU_JIT_OPTIMIZATION_LEVEL || values[0])
    return CUDA_ERROR_INVALID_VALUE;
  return told_to("cuModuleLoadDataEx") ? CUDA_ERROR_INVALID_IMAGE : cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  free(module);
  say("cuModuleUnload");
  return spoilt;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = calloc(1, sizeof **function);
  strncpy((*function)->name, name, sizeof (*function)->name - 1);
  return spoilt;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = 16; break;
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 24; break;
  case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 40; break;
  default: return CUDA_ERROR_INVALID_VALUE;
  }
  return function->name[0] ? spoilt : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  char line[320];
  snprintf(line, sizeof line, "cuFuncSetAttribute %s %s %d", function->name,
           attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? "dynamic" : "?", value);
  say(line);
  return spoilt;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  say(config == CU_FUNC_CACHE_PREFER_SHARED ? "cuFuncSetCacheConfig shared" : "?");
  return spoilt;
}

// Of a kernel that is not the timer's own, FAKE_CUDA_PARAMETERS says how many parameters to read.
static void describe(CUfunction function, void **parameters, char *line, size_t room) {
  const char *count = getenv("FAKE_CUDA_PARAMETERS");
  for (int i = 0; count && i < atoi(count); i++) {
    size_t used = strlen(line);
    unsigned long word;
    memcpy(&word, parameters[i], 8);
    snprintf(line + used, room - used, " %lx", word);
  }
}

CUresult cuLaunchKernel(CUfunction function, unsigned int x, unsigned int y, unsigned int z,
                        unsigned int threads_x, unsigned int threads_y, unsigned int threads_z,
                        unsigned int shared, CUstream stream, void **parameters, void **extra) {
  char line[2048];
  if (!x || !y || !z || stream || extra || threads_y != 1 || threads_z != 1)
    return CUDA_ERROR_INVALID_VALUE;
  if (!strcmp(function->name, "whet_sleep")) {
    now_ns += *(long *)parameters[0] * 1e6 / CLOCK_KHZ;
    return spoilt;
  }
  if (!strncmp(function->name, "whet_", 5)) {
    now_ns += 1000;
    return spoilt;
  }
  snprintf(line, sizeof line, "cuLaunchKernel %s %u,%u,%u %u %u", function->name, x, y, z,
           threads_x, shared);
  describe(function, parameters, line, sizeof line);
  say(line);
  now_ns += 1000.0 * x;
  if (told_to(function->name) && x == (unsigned)atoi(strrchr(getenv("FAKE_CUDA_FAIL"), '@') + 1))
    spoilt = CUDA_ERROR_ILLEGAL_ADDRESS;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  *event = calloc(1, sizeof **event);
  return flags == CU_EVENT_DEFAULT ? spoilt : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventDestroy(CUevent event) {
  free(event);
  return spoilt;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  now_ns += 500;
  event->at_ns = now_ns;
  event->number = ++recorded;
  return stream ? CUDA_ERROR_INVALID_VALUE : spoilt;
}

CUresult cuEventQuery(CUevent event) {
  return spoilt ? spoilt : event->number <= completed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end) {
  *ms = (float)((end->at_ns - start->at_ns) / 1e6);
  return spoilt;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
  switch (code) {
  case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; break;
  case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
  case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; break;
  case CUDA_ERROR_NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
  default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
